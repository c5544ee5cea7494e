// A rank of hosts_test.py: 20 steps on a batch that the ranks share out. Arguments: a folder, where
// RANK.before and RANK.after get the weights as float64 bytes, and the rank that kills itself after
// its first step, or -1. Rank 0 tells the loss of every step. With a third argument the others go on
// after a death: those that live begin again in a group of their own.
#include <hanji/hanji.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

namespace {

constexpr int64_t kBatch = 48;
constexpr int kSteps = 20;

struct Net : torch::nn::SequentialImpl {
  Net()
      : SequentialImpl(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                       torch::nn::Tanh(), torch::nn::Linear(64, 1)) {}
};

void write(const Net& net, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const at::Tensor& parameter : net.parameters()) {
    const at::Tensor values = parameter.detach().contiguous();
    file.write(static_cast<const char*>(values.const_data_ptr()),
               static_cast<std::streamsize>(values.nbytes()));
  }
}

void train(const hanji::comm::Group& group, const std::string& folder, int victim) {
  const std::string name = folder + "/" + std::to_string(group.rank());
  torch::manual_seed(group.rank() + 1);  // so that the broadcast of rank 0's weights matters
  Net net;
  net.to(torch::kDouble);
  auto replicas = hanji::data_parallel(net, group);
  write(net, name + ".before");

  const int64_t share = kBatch / group.size();
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor all = torch::sin(torch::arange(kBatch * 8, torch::kDouble) * 0.7 + step);
    const at::Tensor mine = all.view({kBatch, 8}).narrow(0, group.rank() * share, share);
    optimizer.zero_grad();
    at::Tensor loss = (net.forward(mine) - mine.sum(1, /*keepdim=*/true).tanh()).square().mean();
    loss.backward();
    optimizer.step();
    loss = loss.detach().view({1}) / group.size();
    hanji::comm::all_reduce(loss, group).wait();
    if (group.rank() == 0) std::printf("step %d loss %.15g\n", step + 1, loss.item<double>());
    if (group.rank() == victim) std::raise(SIGKILL);
  }
  replicas.check_parameters();  // throws, and says where, if the replicas differ by one bit
  write(net, name + ".after");
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  try {
    const auto world = hanji::connect();
    auto group = world.group();
    try {
      train(group, arguments[1], std::stoi(arguments[2]));
    } catch (const hanji::Error& error) {
      if (count == 3 || error.code() != hanji::Code::kPeerLost) throw;
      group = group.survivors(std::chrono::seconds(30));
      train(group, arguments[1], -1);
    }
    std::printf("rank %d of %d over %s\n", group.rank(), group.size(),
                std::string(group.engine()).c_str());
  } catch (const hanji::Error& error) {
    std::printf("%s\n", error.what());
    return 6;
  }
}
