#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <vector>

#include "hanji/comm/internal/engine.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace hanji::comm::c10d {

/// Refuses a list that this rank cannot walk without its peers' memory: a sync, or an operand of
/// another rank. And one of partial sums for an average, which divides where everything is summed.
Status check_steps(const schedule::StepList& list, int rank, schedule::ReduceOp op);

/// Walks this rank's steps of a list over a backend's send and recv.
///
/// Sends and receives in a row are posted together as long as their bytes are apart; a copy, a
/// reduction or the end waits for them. Reductions are those of the shared-memory engine, so the
/// bits are its bits.
/// Errors  throws what the backend throws.
class StepWalk {
 public:
  StepWalk(::c10d::Backend& backend, const Request& request, const schedule::StepList& list,
           std::chrono::milliseconds deadline);
  ~StepWalk();
  void run();

 private:
  /// A send or receive on its way.
  struct Open {
    const std::byte* begin;
    const std::byte* end;
    bool is_receive;
    std::vector<at::Tensor> tensors;
    c10::intrusive_ptr<::c10d::Work> work;
  };

  std::byte* address(const schedule::Operand& operand) const;
  void post(const schedule::Step& step);
  void copy(const schedule::Step& step) const;
  void reduce(const schedule::Step& step) const;
  void wait_for_open();

  ::c10d::Backend& backend_;
  const Request& request_;
  const schedule::StepList& list_;
  std::chrono::milliseconds deadline_;
  int64_t element_bytes_;
  at::Tensor slot_;
  at::Tensor result_;
  std::vector<Open> open_;
};

}  // namespace hanji::comm::c10d
