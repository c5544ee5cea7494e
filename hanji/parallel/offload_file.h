#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hanji/base/scratch_file.h"
#include "hanji/base/status.h"

namespace hanji::parallel {

/// A scratch file that several objects share: a model, whose shards are in the file, and the optimizer
/// that updates them.
///
/// Order   a transfer starts after overlapping transfers have ended.
/// Errors  throws those of ScratchFile, prefixed by the owner. After the first error the file has data
///         of different steps, so every later call throws that error.
/// Thread  one at a time.
class OffloadFile {
 public:
  using Memory = base::ScratchFile::Memory;
  using Ticket = base::ScratchFile::Ticket;

  /// Allocates `bytes` of the disk.
  static Result<std::shared_ptr<OffloadFile>> create(std::string owner,
                                                     const std::filesystem::path& folder,
                                                     int64_t bytes,
                                                     const base::ScratchOptions& options);

  Ticket read(int64_t at, Memory memory, int64_t bytes) { return start(false, at, memory, bytes); }
  Ticket write(int64_t at, Memory memory, int64_t bytes) { return start(true, at, memory, bytes); }
  /// Returns immediately if the transfer was waited for before.
  void wait(Ticket ticket);
  void flush();
  /// Maps elements of the file, which are read and written on access.
  at::Tensor map(int64_t at, int64_t count, at::ScalarType dtype);

  /// Every later call throws `status`, unless there was an error before.
  void fail(const Status& status);
  void check_usable() const { base::throw_if_error(failure_); }
  /// While `why` is not empty, only the owner may change the file.
  void refuse_updates(std::string why) { why_refused_ = std::move(why); }
  void check_updates_allowed() const;

  const std::string& description() const { return file_.description(); }

 private:
  struct Transfer {
    Ticket ticket;
    bool writes;
    int64_t begin, end;
  };
  OffloadFile(std::string owner, base::ScratchFile file)
      : owner_(std::move(owner)), file_(std::move(file)) {}
  Ticket start(bool writes, int64_t at, const Memory& memory, int64_t bytes);

  std::string owner_;
  base::ScratchFile file_;
  std::vector<Transfer> open_;
  Status failure_;
  std::string why_refused_;
};

/// Bytes of `count` elements in such a file, in whole blocks.
constexpr int64_t offload_bytes(int64_t count, size_t element_bytes) {
  return base::whole_blocks(count * static_cast<int64_t>(element_bytes));
}

}  // namespace hanji::parallel
