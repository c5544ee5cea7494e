#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/internal/peers.h"
#include "hanji/comm/hierarchical/internal/program.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm::hierarchical {

/// A call of one of a rank's two groups; none: over when it began.
struct Begun {
  const Group* group = nullptr;
  uint64_t sequence = 0;

  bool over() const;
};

/// Carries out a call that all ranks agreed on, as the stages of a Program.
///
/// Stages begin in the order of the program, which is the same on all ranks of a host: so are the
/// calls of their group.
class StageRunner {
 public:
  explicit StageRunner(const Peers& peers) : peers_(peers) {}

  /// Makes program and staging for the call. `request` must outlive its last step().
  /// Errors  throws Error where there is no memory for the staging.
  void prepare(const Request& request);

  enum class Progress : uint8_t { kNone, kBegan, kOver };
  /// Begins the next stage if it may begin. Not after kOver.
  /// Errors  throws what the groups do.
  Progress step();

  /// Stages of the call that have begun.
  size_t num_begun() const { return begun_.size(); }
  /// Stats of the group of all ranks, once it was used.
  Stats stats_of_all() const { return all_ ? all_->stats() : Stats(); }

 private:
  void make_staging(Buffer buffer, int64_t elements);
  Begun begin(const Stage& stage);
  Begun begin_with_all();
  const at::Tensor& base_of(Buffer buffer) const;
  at::Tensor tensor_of(const Piece& piece) const;
  void divide(const Piece& piece) const;
  void move(const std::vector<Move>& moves) const;

  const Peers& peers_;
  const Request* request_ = nullptr;
  std::optional<Shape> shape_;  // program_ is for it
  Program program_;
  std::vector<Begun> begun_;  // by stage
  std::array<at::Tensor, kNumBuffers> staging_;
  std::optional<Group> all_;  // joined by the first call that needs it
};

}  // namespace hanji::comm::hierarchical
