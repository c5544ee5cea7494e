#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/lens/internal/tape.h"

namespace hanji::lens {

/// Elements computed at once: below libtorch's grain, so that no operation on a block is cut among
/// threads, and what a kernel does with its last few elements does not depend on their number.
inline constexpr int64_t kBlock = 1 << 14;

/// The recorded operations that a storage depends on, if each of them treats every element by
/// itself: then any range of elements can be computed alone.
class BlockProgram {
 public:
  BlockProgram(const Tape& tape, int storage);
  /// Whether it can: else use replay_whole().
  bool ok() const { return ok_; }

  at::ScalarType dtype() const { return dtype_; }
  int64_t numel() const { return numel_; }

  /// Writes elements [range) to `out`, of one dimension, contiguous, dtype().
  ///
  /// Result  each element is the same for any range that holds it, and any number of threads.
  void write(layout::Range range, const at::Tensor& out) const;

 private:
  bool check();
  bool check_slot(const Slot& slot);
  at::Tensor block(layout::Range range) const;

  const Tape& tape_;
  int storage_;
  std::vector<int> entries_;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<std::pair<int, at::ScalarType>> dtypes_;
  int64_t numel_ = -1;
  bool ok_ = false;
};

/// The whole content of a storage before entry `end`, by repeating what it depends on.
///
/// Errors  throws kUnsupported, naming the operation, if one cannot be repeated.
c10::Storage replay_whole(const Tape& tape, int storage, int end);

/// A tensor of the tape on its memory.
at::Tensor on_storage(const Slot& slot, const c10::Storage& storage);

}  // namespace hanji::lens
