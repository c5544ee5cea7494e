#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "hanji/base/scratch_file.h"
#include "hanji/parallel/flat_optimizer.h"

namespace hanji::parallel {

class StateStore;

/// The place of an optimizer's state outside of memory.
struct OffloadOptions {
  std::filesystem::path folder;      ///< Of a local disk with room for the state.
  int64_t piece_elements = 1 << 20;  ///< Updated at one time; a multiple of 4096.
  int num_windows = 3;               ///< Pieces in memory: read ahead, updated, written; >= 2.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  ///< Of a wait for the disk.
  base::ScratchEngine engine = base::ScratchEngine::kAuto;
  const base::Log* log = nullptr;  ///< Logs that the kernel rejects io_uring.
};

/// An element-wise optimizer (AdamW, SGD, Lion) whose state is in an unlinked file, for state that
/// does not fit in memory. While a piece is updated, the next one is read and the last one written.
///
///   auto optimizer = offloaded([](FlatPart part, const SumOverParts&) { return flat_adamw(part); },
///                              {.folder = "/scratch"}, sharded.flat_parts());
///   sharded.step([&] { optimizer->step(3e-4, 1.0); });
///
/// Result  the bits of the same optimizer with its state in memory.
/// Cost    memory: num_windows pieces of state. Disk per step: the state read once and written once,
///         16 bytes per fp32 parameter of AdamW, during its update; the last writes continue after
///         step() has returned.
/// Errors  step(), state() and values() throw kTimeout, kOutOfMemory (a full disk) or kCorrupt
///         (a truncated file), naming the folder. A step that has thrown has updated only a part:
///         every later call throws too; resume from a checkpoint.
/// Thread  one at a time.
/// Source  Rajbhandari et al., ZeRO-Infinity, SC 2021, sections 5.2.2 and 6.2.
class OffloadedOptimizer : public FlatOptimizer {
 public:
  OffloadedOptimizer(const MakeOptimizer& make, const OffloadOptions& options,
                     std::vector<FlatPart> parts);
  ~OffloadedOptimizer() override;

  void step(double learning_rate, double gradient_divisor) override;

  /// The file as tensors, which are read on access; writes go to the file. With several parts the
  /// names start with "part 0 ". Call it again after each step.
  std::vector<NamedParameter> state() const override;
  /// One kind of state ("first_moment"), a tensor per non-empty piece of the parts, in their order: the
  /// argument of Sharded::gather() and the result of Sharded::scatter().
  /// Errors  throws kNotFound, naming the kinds, if there is none of that name.
  std::vector<at::Tensor> values(std::string_view kind) const;

  /// Bytes of memory for state.
  int64_t window_bytes() const;
  /// How bytes are transferred: "io_uring, past the page cache".
  const std::string& description() const;

 private:
  std::unique_ptr<StateStore> store_;
};

/// Makes an OffloadedOptimizer. Errors: throws kUnsupported for an optimizer that is not element-wise, and for
/// parameters that are not on the CPU; kInvalidArgument for options; those of the file.
std::unique_ptr<OffloadedOptimizer> offloaded(const MakeOptimizer& make,
                                              const OffloadOptions& options,
                                              std::vector<FlatPart> parts);

}  // namespace hanji::parallel
