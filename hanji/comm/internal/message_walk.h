#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "hanji/comm/internal/wire.h"

namespace hanji::comm {

/// Refuses a list that this rank cannot walk without its peers' memory: a sync, or an operand of
/// another rank. And one of partial sums for an average, which divides where everything is summed.
Status check_steps(const schedule::StepList& list, int rank, schedule::ReduceOp op);

/// Walks this rank's steps of a list over a wire, on CPU tensors.
///
/// Sends and receives in a row are posted together as long as their bytes are apart; a copy, a
/// reduction or the end waits for them. Reductions are those of the shared-memory engine, so the
/// bits are its bits.
class MessageWalk {
 public:
  /// The request and the list must outlive the walk.
  MessageWalk(Wire& wire, const Request& request, const schedule::StepList& list);

  /// Goes on as far as it can without waiting; true at the end.
  /// Errors  throws Error.
  bool advance();

  /// The peers of the messages that are open, in the order in which a wire that blocks waits.
  std::vector<int> waits_for() const;

 private:
  /// A send or receive on its way.
  struct Open {
    const std::byte* begin;
    const std::byte* end;
    bool is_receive;
    int peer;
    std::unique_ptr<Pending> pending;
    bool over = false;
  };

  std::byte* address(const schedule::Operand& operand) const;
  bool post(const schedule::Step& step);  // false if it must wait for those that are open
  void copy(const schedule::Step& step) const;
  void reduce(const schedule::Step& step) const;
  bool open_are_done();

  Wire& wire_;
  const Request& request_;
  const std::vector<schedule::Step>& steps_;
  const int64_t element_bytes_;
  size_t next_ = 0;
  at::Tensor slot_;
  at::Tensor result_;
  std::vector<Open> open_;
};

}  // namespace hanji::comm
