#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/status.h"
#include "hanji/comm/group.h"

namespace hanji::comm::c10d {

/// Receives from whichever rank sends, on a thread of its own, one call after another: a group's
/// thread sees only the channels that it has calls on.
class AnySource {
 public:
  /// How the call ended, and who sent.
  using Done = std::function<void(const Status&, int from)>;

  explicit AnySource(const Group& group);
  /// Ends the calls that are open, with an error.
  ~AnySource();

  /// Receives into `tensor` after the calls before. Errors reach `done`.
  void add(const at::Tensor& tensor, uint64_t tag, Done done);

 private:
  struct Call {
    at::Tensor tensor;
    uint64_t tag;
    base::Deadline deadline;
    Done done;
  };
  void drive(const std::stop_token& stop);
  bool serve(Call& call);  // true if it has ended or is on its way

  Group group_;
  int last_ = -1;  ///< Who sent last: the others are looked at first.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Call> calls_;
  std::jthread thread_;
};

}  // namespace hanji::comm::c10d
