#pragma once

#include <cstdint>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/trace/event.h"

namespace hanji::trace {

/// Ranges for a profiling tool that injects itself into the process by NVTX 3, as Nsight Systems does: domain "hanji",
/// one category for each trace::Category. They cost a comparison where NVTX_INJECTION64_PATH is not set.
///
/// Thread  any. The first call in a process loads the tool.

/// Whether a tool receives ranges.
bool has_range_tool();

/// Loads the tool.
///
/// Errors  kNotFound if NVTX_INJECTION64_PATH is set and no tool came of it, with the reason: NVTX itself says nothing.
///         kUnsupported if this build has no NVTX headers.
Status load_range_tool();

/// A range of this thread from birth to death.
/// Order   ranges of a thread nest.
class Range {
 public:
  /// `payload`: a step's or layer's number.
  Range(std::string_view name, Category category, int64_t payload) {
    if (has_range_tool()) [[unlikely]]
      push(name, category, payload);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() {
    if (is_pushed_) [[unlikely]]
      pop();
  }

 private:
  void push(std::string_view name, Category category, int64_t payload);
  void pop();

  bool is_pushed_ = false;
};

/// A range that may overlap others and end on another thread; 0: there is no tool. `payload`: bytes.
using RangeId = uint64_t;
RangeId begin_range(std::string_view name, Category category, int64_t payload);
void end_range(RangeId range);

}  // namespace hanji::trace
