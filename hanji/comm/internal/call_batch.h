#pragma once

#include <array>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Calls that are kept back until all of them are submitted together.
///
/// Thread  one at a time, until submit().
class CallBatch {
 public:
  explicit CallBatch(std::source_location opened_at) : opened_at_(opened_at) {}

  struct Call {
    std::shared_ptr<GroupState> over;
    Request request;
    std::array<int, 2> ends = {-1, -1};  ///< Of a message, as Work::name_ends().
  };
  /// Keeps a call back.
  void add(Call call) { calls_.push_back(std::move(call)); }
  /// Starts everything, small sums of `group` in a row as one.
  /// Errors  throws what a call alone would; one that comes after others have started ends the
  ///         group.
  void submit(const std::shared_ptr<GroupState>& group);

  /// One for each call that was made of them.
  /// Errors  throws Error(kInvalidArgument) before submit().
  const std::vector<Work>& works() const;

 private:
  size_t end_of_run(const GroupState& group, size_t begin) const;
  Work submit_fused(const std::shared_ptr<GroupState>& group, size_t begin, size_t end);

  const std::source_location opened_at_;
  std::vector<Call> calls_;
  std::optional<std::vector<Work>> works_;
};

}  // namespace hanji::comm
