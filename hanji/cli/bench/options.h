#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "hanji/cli/command_line.h"
#include "hanji/report/bench_request.h"

namespace hanji::cli {

/// What `hanji bench` was asked to measure, checked.
struct BenchWish {
  enum class Caches { kRefilled, kHot, kCold };

  std::vector<schedule::Routine> routines;
  report::SizeRange sizes;
  std::vector<DType> dtypes;
  std::vector<schedule::ReduceOp> ops;
  std::vector<int> roots;
  int ranks = 1;
  std::string engine;
  std::vector<report::BenchPlacement> placements;
  std::vector<std::string> peers;
  int pairs = 30;
  int64_t calls = 0;    ///< Per round; 0: so many as take a moment.
  int64_t warmup = -1;  ///< Before them; -1: a fifth as many.
  bool check = true;
  report::Average average = report::Average::kMax;
  Caches caches = Caches::kRefilled;
  std::chrono::seconds timeout{300};
  int corrupt = -1;

  /// All calls of one routine, in the order in which they are measured.
  std::vector<report::BenchCase> cases(schedule::Routine routine) const;
};

/// The flags as they were typed: nccl-tests' letters and ours.
class BenchOptions {
 public:
  /// Adds the flags, and the routines. The object must outlive the parsing.
  void add_to(Verb verb);

  /// Errors  kInvalidArgument with every mistake in a line of its own.
  Result<BenchWish> wish(int usable_cores) const;

  /// Of --fit, which takes no routine; 0: as many as there are cores. Errors: as wish().
  Result<int> ranks_to_fit() const;

  bool as_json = false;
  bool fit = false;                ///< Fit costs instead of measuring routines.
  std::string python = "python3";  ///< That has torch, for the peer pytorch.

 private:
  struct Refused {
    std::string flag;
    std::string value;
    std::string harmless;  ///< The value that asks for what is done anyway.
    std::string why;
  };
  void add_nccl_letters(Verb verb);
  void add_refused(Verb verb);

  std::vector<std::string> routines_;
  std::string bytes_, first_, last_, step_, factor_;
  std::string dtypes_ = "float32";
  std::string ops_ = "sum";
  std::string roots_ = "0";
  std::string placement_;
  std::string engine_ = "shm";
  std::string peers_;
  std::string ranks_, pairs_, calls_, warmup_, check_, average_, timeout_, corrupt_;
  bool hot_ = false;
  bool cold_ = false;
  std::vector<Refused> refused_;
};

}  // namespace hanji::cli
