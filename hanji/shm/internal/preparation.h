#pragma once

#include <cstdint>
#include <memory>

#include "hanji/base/status.h"
#include "hanji/shm/internal/group_lines.h"
#include "hanji/shm/internal/operation.h"

namespace hanji::shm::internal {

/// Turns a rank's call into an operation that can run, or says what is wrong with it.
class Preparation {
 public:
  explicit Preparation(const GroupLines& lines)
      : lines_(lines), programs_(lines.me(), lines.size()) {}

  /// Checks the call's lists and buffers, backs this rank's staging, and writes what the peers
  /// will be told. `number` counts the operations of the group.
  Status prepare(const Call& call, uint64_t number, Operation& operation);

 private:
  Result<std::shared_ptr<const Program>> program_for(
      const Call& call, const std::shared_ptr<const schedule::StepList>& list);
  Status back_staging(const Program& program, const Call& call);
  Descriptor describe(const Operation& operation, uint64_t number) const;
  bool only_posts(const Operation& operation) const;
  int64_t offset_of(const void* buffer, int64_t elements, DType dtype) const;

  const GroupLines& lines_;
  ProgramCache programs_;
  size_t backed_staging_ = 0;  ///< Bytes of each slot and result that memory is there for.
};

}  // namespace hanji::shm::internal
