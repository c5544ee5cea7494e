// A user's program for connect_test.cpp: sums the ranks, tells what it found on stdout.
#include <ATen/ATen.h>

#include <cstdio>

#include "hanji/comm/all_reduce.h"
#include "hanji/world/connect.h"

int main() {
  try {
    const auto world = hanji::connect();
    at::Tensor sum = at::full({3}, world.rank(), at::kLong);
    hanji::comm::all_reduce(sum, world.group()).wait();
    std::printf("rank %d of %d sums %d plan '%s'\n", world.rank(), world.size(),
                static_cast<int>(sum[2].item<int64_t>()), world.plan_json().c_str());
  } catch (const hanji::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
