// Exercise 2: fill in each `____`, so that the ranks take the steps that one process takes on all samples.
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdio>

constexpr int kSteps = 4, kMicroBatches = 3, kSamples = 2;  // samples of a micro-batch

int main() {
  auto world = hanji::connect();
  torch::nn::Linear net(3, 1);
  net->to(torch::kDouble);
  for (auto& parameter : net->parameters()) parameter.data().zero_();

  // How are the gradients of the ranks combined?
  auto replicas =
      hanji::data_parallel(*net, world.group(), {.average = hanji::parallel::Average::kMean});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto before = world.group().stats().operations;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const int place = (step * world.size() + world.rank()) * kMicroBatches + micro;
      const auto i = torch::arange(place * kSamples, (place + 1) * kSamples, torch::kDouble);
      const auto x = torch::stack({torch::sin(i), torch::cos(2 * i), torch::sin(3 * i)}, 1);
      const auto mean = torch::mse_loss(net(x).squeeze(1), torch::cos(i));  // over these samples
      // What must the mean be divided by, so that the micro-batches add up to a mean?
      const auto loss = mean / kMicroBatches;
      // Which micro-batches must not send their gradients yet, and what holds them back?
      if (micro + 1 < kMicroBatches) {
        const auto guard = replicas.accumulate();
        loss.backward();
      } else {
        loss.backward();
      }
    }
    optimizer.step();
  }
  const auto weights = torch::cat({net->weight.flatten(), net->bias}).detach();
  std::printf("rank %d calls %ld weights", world.rank(), world.group().stats().operations - before);
  for (int k = 0; k < 4; ++k) std::printf(" %.17g", weights[k].item<double>());
  std::printf("\n");
}
