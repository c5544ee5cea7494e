// prepared_calls [--smoke]: what does a prepared all_reduce save over the plain function?
//
// One rank alone, where all is the caller's own work, and two on two cores. A block is a row of
// calls of one size, or of four alternating sizes, as in a step; each pair is a block of plain
// calls and one of prepared ones, the first of each pair alternates. Sums are verified before and after.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/prepare.h"
#include "hanji/report/statistics.h"
#include "hanji/world/spawn.h"

using namespace hanji;

namespace {

constexpr int64_t kBytes[] = {8, 64, 512, 4 << 10, 16 << 10, 64 << 10};
constexpr int kShapes = 4;
constexpr std::array<const char*, kShapes> kLabels = {"first", "second", "third", "fourth"};

/// Calls of `bytes` and a little more, alternating if there are several.
class Pair {
 public:
  Pair(const comm::Group& group, int64_t bytes, int num_shapes) : group_(group) {
    for (int shape = 0; shape < num_shapes; ++shape) {
      const int64_t count = bytes / 4 + 2 * shape;
      tensors_.push_back(group.heap().zeros({count}, at::kFloat, "bench"));
      calls_.push_back(comm::prepare(schedule::Routine::kAllReduce, at::kFloat, {count}, group,
                                     {.label = kLabels[shape]}));
    }
  }

  void plain() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      comm::all_reduce(tensors_[i], group_, {.label = kLabels[i]}).wait();
    }
  }
  void prepared() {
    for (size_t i = 0; i < tensors_.size(); ++i) calls_[i].start(tensors_[i]).wait();
  }

  void verify() {
    for (const auto run : {&Pair::plain, &Pair::prepared}) {
      for (at::Tensor& tensor : tensors_) tensor.fill_(group_.rank() + 1);
      (this->*run)();
      const int due = group_.size() * (group_.size() + 1) / 2;
      for (at::Tensor& tensor : tensors_) {
        if (!tensor.eq(due).all().item<bool>()) throw std::runtime_error("a wrong sum");
        tensor.zero_();
      }
    }
  }

  /// Seconds per call of a row of `rounds`.
  double seconds(bool prepares, int rounds) {
    comm::barrier(group_);
    const int64_t start = base::now_ns();
    for (int i = 0; i < rounds; ++i) prepares ? prepared() : plain();
    const auto calls = static_cast<double>(rounds) * static_cast<double>(tensors_.size());
    return static_cast<double>(base::now_ns() - start) * 1e-9 / calls;
  }

 private:
  const comm::Group& group_;
  std::vector<at::Tensor> tensors_;
  std::vector<comm::Call> calls_;
};

void measure(const comm::Group& group, int64_t bytes, int num_shapes, int pairs) {
  Pair pair(group, bytes, num_shapes);
  pair.verify();
  const int rounds =
      static_cast<int>(std::clamp<int64_t>((2 << 20) / bytes, 50, 2000)) / num_shapes;
  std::vector<double> plain, prepared, ratios;
  for (int i = 0; i < pairs; ++i) {
    double seconds[2];
    for (const int which : {i % 2, 1 - i % 2}) seconds[which] = pair.seconds(which == 1, rounds);
    plain.push_back(seconds[0]);
    prepared.push_back(seconds[1]);
    ratios.push_back(seconds[1] / seconds[0]);
  }
  pair.verify();
  if (group.rank() != 0) return;
  const auto interval = report::median_interval(ratios);
  fmt::print(
      "{{\"question\": \"prepared_calls\", \"ranks\": {}, \"bytes\": {}, \"shapes\": {}, "
      "\"seconds_plain\": {:.3g}, \"seconds_prepared\": {:.3g}, \"ratio_median\": {:.3f}, "
      "\"ratio_interval_95\": [{:.3f}, {:.3f}], \"pairs\": {}}}\n",
      group.size(), bytes, num_shapes, report::median(plain), report::median(prepared),
      report::median(ratios), interval.low, interval.high, pairs);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  for (const int ranks : {1, 2}) {
    spawn(ranks, [&](World& world) {
      for (const int64_t bytes : kBytes) {
        for (const int num_shapes : {1, kShapes}) {
          measure(world.group(), bytes, num_shapes, smoke ? 4 : 60);
        }
      }
    });
  }
}
