// A rank of hosts_test.py, in one of two forms:
//
//   FOLDER VICTIM [rebuild]       20 steps on a batch that the ranks share out. RANK.before and
//       RANK.after in the folder get the weights as float64 bytes; rank VICTIM kills itself after
//       its first step. Rank 0 tells the loss of every step. With "rebuild" the others go on after a
//       death: those that live begin again in a group of their own.
//   sums ROUNDS ELEMENTS DEADLINE    all_reduces of whole numbers, each compared with the sum that it
//       must be, bit for bit. Every rank tells the round and its seconds; a call has DEADLINE seconds.
#include <hanji/hanji.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
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

timespec wall_time() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

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
    if (group.rank() == victim) {
      const timespec now = wall_time();  // the logs' own clock
      std::printf("dies at %lld.%09ld\n", static_cast<long long>(now.tv_sec), now.tv_nsec);
      std::fflush(stdout);
      std::raise(SIGKILL);
    }
  }
  replicas.check_parameters();  // throws, and says where, if the replicas differ by one bit
  write(net, name + ".after");
}

/// Rank r has (r + 1)(i % 1000 + round) at i: whole numbers, whose sums float32 holds exactly.
bool sum_rounds(const hanji::comm::Group& group, int rounds, int64_t elements, int deadline) {
  const at::Tensor index = torch::arange(elements, torch::kFloat).remainder(1000);
  const int times = group.size() * (group.size() + 1) / 2;
  for (int round = 1; round <= rounds; ++round) {
    at::Tensor tensor = (index + round) * (group.rank() + 1);
    const auto begin = std::chrono::steady_clock::now();
    hanji::comm::all_reduce(tensor, group, {.deadline = std::chrono::seconds(deadline)}).wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (!torch::equal(tensor, (index + round) * times)) {
      std::printf("round %d wrong\n", round);
      return false;
    }
    std::printf("round %d right after %.3f s\n", round, taken.count());
    std::fflush(stdout);
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  try {
    const auto world = hanji::connect();
    auto group = world.group();
    if (std::string(arguments[1]) == "sums") {
      if (count != 5) return 2;
      const int64_t elements = std::stoll(arguments[3]);
      return sum_rounds(group, std::stoi(arguments[2]), elements, std::stoi(arguments[4])) ? 0 : 7;
    }
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
