// One rank of bench/hosts: all-reduces float32 sums, alternately by the hierarchy and by the flat
// ring of the engine between hosts. Rank 0 prints per call
//   {"engine": "hierarchical" | "ring", "seconds": of the slowest rank, "wrong": elements,
//    "sent": bytes of tensors by the ranks of its host, "interface": bytes of its host's interface}
// Arguments: the interface between hosts, the bytes of the tensor, the pairs of calls.
#include <ATen/ops/full.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/env.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/heap.h"
#include "hanji/world/connect.h"

namespace {

using namespace hanji;

/// All ranks in one ring by Gloo's own algorithm, in the order of ranks: host by host.
comm::Group make_ring(const world::World& world, const std::string& interface) {
  ::c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(base::read(base::Variable::kMasterPort).value()));
  options.isServer = world.rank() == 0;
  options.waitWorkers = false;
  auto store = c10::make_intrusive<::c10d::TCPStore>(
      base::read(base::Variable::kMasterAddr).value(), options);
  return comm::gloo::make_group(store, world.rank(), world.size(),
                                {.name = "ring", .bits = comm::Bits::kFast}, interface);
}

/// What the kernel has sent on it so far.
int64_t interface_bytes(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/statistics/tx_bytes");
  int64_t bytes = 0;
  file >> bytes;
  return bytes;
}

class Bench {
 public:
  Bench(const world::World& world, std::string interface, int64_t bytes)
      : interface_(std::move(interface)),
        is_on_first_host_(world.rank() == world.local_rank()),
        group_(world.group()),
        ring_(make_ring(world, interface_)),
        tensor_(group_.heap().empty({bytes / 4}, at::kFloat, "bench")) {}

  nlohmann::json call(const std::string& engine) {
    const comm::Group& group = engine == "ring" ? ring_ : group_;
    fill(tensor_);
    comm::barrier(group_);
    const int64_t sent_before = group.stats().network_bytes;
    const int64_t interface_before = interface_bytes(interface_);
    const int64_t start = base::now_ns();
    comm::all_reduce(tensor_, group).wait();
    const int64_t spent_ns = base::now_ns() - start;
    comm::barrier(group_);
    const int64_t interface_sent = interface_bytes(interface_) - interface_before;
    const int64_t sent = group.stats().network_bytes - sent_before;
    return {{"engine", engine},
            {"seconds", static_cast<double>(over_ranks(spent_ns, schedule::ReduceOp::kMax)) * 1e-9},
            {"wrong", over_ranks(num_wrong(tensor_), schedule::ReduceOp::kSum)},
            {"sent", over_ranks(is_on_first_host_ ? sent : 0, schedule::ReduceOp::kSum)},
            {"interface", interface_sent}};
  }

 private:
  int64_t over_ranks(int64_t value, schedule::ReduceOp op) const {
    at::Tensor tensor = at::full({1}, value, at::kLong);
    comm::all_reduce(tensor, group_, {.op = op}).wait();
    return tensor.item<int64_t>();
  }

  void fill(at::Tensor& tensor) const {
    auto* values = tensor.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      values[i] = static_cast<float>(i % 1000 + group_.rank());
    }
  }

  int64_t num_wrong(const at::Tensor& tensor) const {
    const int ranks = group_.size();
    const auto* values = tensor.const_data_ptr<float>();
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      wrong += values[i] != static_cast<float>(i % 1000 * ranks + ranks * (ranks - 1) / 2);
    }
    return wrong;
  }

  const std::string interface_;
  const bool is_on_first_host_;
  const comm::Group group_;
  const comm::Group ring_;
  at::Tensor tensor_;
};

}  // namespace

int main(int count, char** arguments) try {
  if (count != 4) {
    std::cerr << "usage: hosts_rank INTERFACE BYTES PAIRS\n";
    return 2;
  }
  const world::World world = connect();
  Bench bench(world, arguments[1], std::stoll(arguments[2]));
  bench.call("ring"), bench.call("hierarchical");
  for (int pair = 0; pair < std::stoi(arguments[3]); ++pair) {
    for (const bool first : {true, false}) {
      const auto answer = bench.call(first == (pair % 2 == 0) ? "hierarchical" : "ring");
      if (world.rank() == 0) std::cout << answer << std::endl;
    }
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
