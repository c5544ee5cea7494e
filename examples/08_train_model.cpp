// A module and data of your own, with all that `hanji train` has: the plan before step 1, every strategy,
// bits that do not depend on the number of ranks, checkpoints, resuming, traces, a summary.
//
//   08_train_model            hanji run --ranks 2 08_train_model train.bits=stable parallel.data=zero3
//   hanji run --ranks 2 08_train_model --verify train.bits=stable    (are 2 ranks one process?)
#include <hanji/hanji.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <fstream>

/// Two spirals, and of each point the one that it lies on: how many samples, sample i into a row.
struct Spirals : hanji::Source {
  int64_t count(hanji::Part part) const override {
    return part == hanji::Part::kTrain ? 4000 : 400;
  }
  hanji::SampleShape shape() const override { return {.inputs = {2}, .dtype = torch::kFloat}; }
  hanji::Status read(hanji::Part part, int64_t i, hanji::Batch& batch, int64_t row) const override {
    const double turn = (i + (part == hanji::Part::kTrain ? 0 : 0.5)) / count(part) * 4;
    const double angle = turn + (i % 2) * M_PI;
    auto* point = batch.inputs.mutable_data_ptr<float>() + 2 * row;
    point[0] = static_cast<float>(turn / 4 * std::cos(angle));
    point[1] = static_cast<float>(turn / 4 * std::sin(angle));
    batch.targets.mutable_data_ptr<int64_t>()[row] = i % 2;
    return {};
  }
  uint64_t checksum() const override { return 1; }  // of the data, for a run that is resumed
};

auto make_net() {
  using torch::nn::Dropout, torch::nn::Linear, torch::nn::Tanh;
  return hanji::Sequential(Linear(2, 64), Tanh(), Linear(64, 64), Tanh(), Dropout(0.05),
                           Linear(64, 64), Tanh(), Linear(64, 2));
}

/// The sum of the losses, and how many they are.
hanji::LossSum loss(const torch::Tensor& output, const torch::Tensor& targets) {
  return {torch::cross_entropy_loss(output, targets, {}, at::Reduction::Sum), targets.numel()};
}

int main(int argc, char** argv) {
  auto world = hanji::connect();
  hanji::TrainOptions options;
  options.config.train.steps = 300;
  options.config.train.global_batch = 200;
  options.config.train.learning_rate = 1e-2;
  options.assignments = {argv + 1, argv + argc};  // any key of `hanji train`, as KEY=VALUE
  options.write = [](std::string_view text) { std::printf("%s", std::string(text).c_str()); };
  const Spirals spirals;
  if (std::erase(options.assignments, "--verify") > 0) {
    return hanji::verify_model(world, make_net, loss, spirals, options).equal ? 0 : 7;
  }
  const auto trained = hanji::train_model(world, make_net, loss, spirals, options);

  auto net = make_net();  // an ordinary module again, with what was learned
  if (!hanji::load(trained.model, *net).ok()) return 1;
  net->eval();
  hanji::Batch batch{.inputs = torch::empty({400, 2}), .targets = torch::empty({400}, at::kLong)};
  for (int64_t i = 0; i < 400; ++i) {
    if (!spirals.read(hanji::Part::kValidation, i, batch, i).ok()) return 1;
  }
  const auto right = net->forward(batch.inputs).argmax(1).eq(batch.targets).sum().item<int64_t>();
  if (world.rank() ==
      0) {  // what it would need elsewhere: hanji plan --model FILE.json --device 24GB
    std::ofstream(trained.out / "net.json") << hanji::describe(net, batch, loss);
  }
  std::printf("rank %d: %ld of 400 points on their spiral\n", world.rank(), right);
  return right > 320 ? 0 : 1;
}
