#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hanji/cli/bench/calls.h"
#include "hanji/report/bench_request.h"
#include "hanji/report/bench_values.h"
#include "hanji/world/world.h"

namespace hanji::cli {

/// One of our ranks in a bench: makes the calls that it is asked for, times and checks them.
///
///   measure ...              see report::BenchRequest
///   limit PLACEMENT BYTES CALLS   updates that much memory of its own in place, as a reduction does
///   probe                    rank 0: seconds of a flag's round trip to rank 1
class BenchRank {
 public:
  explicit BenchRank(world::World& world) : world_(world) {}

  /// The answer to one line; an error is an answer too.
  std::string answer(const std::string& line);

 private:
  struct Buffers {
    std::vector<at::Tensor> inputs, outputs;  ///< By slot; undefined where the rank has none.
  };

  report::BenchAnswer measure(const report::BenchRequest& request);
  report::BenchAnswer limit(const std::string& line);
  report::BenchAnswer probe();
  BenchCall call_for(const report::BenchRequest& request);
  /// At least `bytes` of memory there.
  at::Tensor& memory(report::BenchPlacement placement, int64_t bytes);
  Buffers buffers_for(const report::BenchRequest& request);
  const report::ValueTile& tile(const report::BenchRequest& request, int row);
  void refill(at::Tensor& input, const report::BenchRequest& request);
  void scrub(int64_t bytes);
  int64_t num_wrong(const at::Tensor& output, const report::BenchRequest& request);

  world::World& world_;
  std::map<report::BenchPlacement, at::Tensor> memory_;
  std::vector<char> scrubbed_;
  std::string table_path_;
  std::vector<double> table_;
  std::map<int, report::ValueTile> tiles_;
  std::optional<comm::Group> gloo_;
  std::optional<GlooCalls> gloo_alone_;
  at::Tensor flags_;          ///< Of rank 0, which holds it alive.
  uint64_t* flag_ = nullptr;  ///< Two cache lines that ranks 0 and 1 write alternately.
};

/// Connects, and answers the requests that come to `folder`, until there are no more.
int serve_bench(const std::string& folder);

}  // namespace hanji::cli
