// One rank of bench/all_reduce: all-reduces float32 sums on request, through our engine or Gloo.
//   {"engine": "heap" | "private" | "gloo" | "limit", "bytes": 8, "calls": 1000}
//   ->  {"seconds": [one per call], "wrong": 0}
// "limit" is the memory's own speed: every rank updates a buffer of its own in place, which is the
// traffic of an all-reduce in the heap without its meetings.
#include <ATen/ops/empty.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "hanji/base/clock.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/heap.h"
#include "hanji/world/connect.h"

namespace {

using namespace hanji;

constexpr int64_t kMostBytes = int64_t{64} << 20;

class Bench {
 public:
  explicit Bench(world::World& world)
      : world_(world),
        in_heap_(world.heap().empty({kMostBytes / 4}, at::kFloat, "bench")),
        private_(at::empty({kMostBytes / 4}, at::kFloat)),
        gloo_(comm::gloo::make_group(world.group())) {}

  nlohmann::json answer(const nlohmann::json& request) {
    const std::string engine = request.at("engine");
    const int64_t count = request.at("bytes").get<int64_t>() / 4;
    at::Tensor tensor =
        (engine == "private" || engine == "gloo" ? private_ : in_heap_).slice(0, 0, count);
    const comm::Group& group = engine == "gloo" ? gloo_ : world_.group();
    nlohmann::json seconds = nlohmann::json::array();
    int64_t wrong = 0;
    for (int64_t call = request.at("calls"); call > 0; --call) {
      fill(tensor);
      comm::barrier(world_.group());
      const int64_t start = base::now_ns();
      if (engine == "limit") {
        update_own(tensor);
      } else {
        comm::all_reduce(tensor, group).wait();
      }
      seconds.push_back(static_cast<double>(base::now_ns() - start) * 1e-9);
      if (engine != "limit") wrong += num_wrong(tensor);
    }
    return {{"seconds", seconds}, {"wrong", wrong}};
  }

 private:
  void fill(at::Tensor& tensor) const {
    auto* values = tensor.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      values[i] = static_cast<float>(i % 1000 + world_.rank());
    }
  }

  int64_t num_wrong(const at::Tensor& tensor) const {
    const int ranks = world_.size();
    const auto* values = tensor.const_data_ptr<float>();
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      wrong += values[i] != static_cast<float>(i % 1000 * ranks + ranks * (ranks - 1) / 2);
    }
    return wrong;
  }

  static void update_own(at::Tensor& tensor) {
    auto* values = tensor.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] += 1.0f;
  }

  world::World& world_;
  at::Tensor in_heap_;
  at::Tensor private_;
  comm::Group gloo_;
};

}  // namespace

int main() {
  world::World world = world::connect();
  Bench bench(world);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << bench.answer(nlohmann::json::parse(line)) << std::endl;
  }
}
