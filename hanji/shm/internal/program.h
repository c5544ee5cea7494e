#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/operation.h"
#include "hanji/schedule/step_list.h"

namespace hanji::shm::internal {

/// A step list that was looked at once: what an engine must know before it runs it.
struct Program {
  std::shared_ptr<const schedule::StepList> list;
  uint32_t fingerprint = 0;  ///< Of everything in the list.
  int num_syncs = 0;
  bool starts_with_sync = false;
  bool only_syncs = false;  ///< This rank moves nothing: at most, others touch its tensors.
  bool uses_result = false;
  bool touches_peers = false;  ///< Some rank touches the input or output of another.
  /// By rank: whether others touch its input, its output.
  std::vector<bool> input_touched, output_touched;
  /// Whether anybody touches the input or output of this rank.
  bool own_input = false, own_output = false;
  bool sums_inputs = true;    ///< What is reduced are inputs or copies of them, nothing in between.
  int num_parts = 1;          ///< That this rank's input has.
  int64_t wire_elements = 0;  ///< That this rank reads from others or writes to them.
};

/// Looks at a list from the side of `rank`.
/// Errors  kInvalidArgument if a range leaves its buffer, a tensor of another rank is touched
///         before the first or after the last sync, staging of another rank is written, or the
///         ranks have different numbers of syncs; kUnsupported if it sends: memory is shared here.
Result<Program> inspect(std::shared_ptr<const schedule::StepList> list, int rank, int size);

/// Whether all that the list passes from rank to rank fits into the flag line.
bool fits_in_line(const Program& program, schedule::ReduceOp op, int64_t count,
                  size_t element_bytes);

/// The programs of the lists seen last, by address; each keeps its list alive.
class ProgramCache {
 public:
  ProgramCache(int rank, int size) : rank_(rank), size_(size) {}
  Result<std::shared_ptr<const Program>> get(const std::shared_ptr<const schedule::StepList>& list);

 private:
  static constexpr size_t kEntries = 256;
  int rank_;
  int size_;
  std::array<std::shared_ptr<const Program>, kEntries> programs_;
};

}  // namespace hanji::shm::internal
