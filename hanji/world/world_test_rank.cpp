// A user's program for connect_test.cpp: sums the ranks, tells what it found on stdout. With the
// argument "die" the last rank kills itself instead, and the others tell what ended their sum; with
// "costs" each tells by which costs its calls are chosen.
#include <ATen/ATen.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/cost/select.h"
#include "hanji/world/connect.h"

int main(int count, char** arguments) {
  try {
    const auto world = hanji::connect();
    const std::string argument = count > 1 ? arguments[1] : "";
    if (argument == "costs") {
      const auto& fitted = world.group().options().chooser->rates().fitted;
      std::printf("rank %d: %s, %.3f s a call\n", world.rank(), fitted ? "fitted" : "typical",
                  fitted ? fitted->call_seconds : 0);
      return 0;
    }
    const bool dies = argument.starts_with("die");  // the last rank, or one that is given: "die 0"
    const int victim = argument.size() > 4 ? std::stoi(argument.substr(4)) : world.size() - 1;
    if (dies) hanji::comm::barrier(world.group());  // all watch over each other by then
    if (dies && world.rank() == victim) std::raise(SIGKILL);
    if (world.num_nodes() > 1) {
      std::printf("%d nodes, %s, local rank %d: ", world.num_nodes(),
                  std::string(world.group().engine()).c_str(), world.local_rank());
    }
    at::Tensor sum = at::full({3}, world.rank(), at::kLong);
    hanji::comm::all_reduce(sum, world.group()).wait();
    std::printf("rank %d of %d sums %d plan '%s'\n", world.rank(), world.size(),
                static_cast<int>(sum[2].item<int64_t>()), world.plan_json().c_str());
  } catch (const hanji::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
