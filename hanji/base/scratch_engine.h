#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::base {

/// Bytes between memory and a place of a file. The memory is held until the transfer has ended.
struct Transfer {
  bool writes = false;
  int64_t at = 0;
  std::shared_ptr<std::byte> memory;
  int64_t bytes = 0;
};

struct EndedTransfer {
  uint64_t ticket = 0;
  int64_t moved = 0;  ///< Fewer than asked, without an error: the file ends there.
  int error = 0;      ///< errno, or 0.
};

/// Makes transfers of one descriptor in the background. Thread: one at a time.
///
/// Its end waits for what is under way, ten seconds at most: then memory and engine are kept for
/// ever, for the kernel may still write there.
class TransferEngine {
 public:
  virtual ~TransferEngine() = default;
  virtual Status start(uint64_t ticket, Transfer transfer) = 0;
  /// One that has ended, waiting for it; none: the deadline has passed.
  virtual Result<std::optional<EndedTransfer>> next(const Deadline& deadline) = 0;
};

/// Opens a file to be read past the kernel's cache of pages: places, lengths and memory are multiples of
/// 4096.
/// Errors  as from_errno(); kUnsupported where the file system does not do that.
Result<Fd> open_past_cache(const std::filesystem::path& path);

/// What moves bytes: as pread(2) and pwrite(2). Tests put others here.
using MoveBytes = int64_t (*)(int fd, const Transfer& rest);
int64_t move_bytes(int fd, const Transfer& rest);

/// By io_uring. `fd` must outlive it.
/// Errors  as from_errno(), where the kernel has none or refuses it, as it does in many containers.
Result<std::unique_ptr<TransferEngine>> make_ring_engine(int fd);
/// By a thread of its own.
Result<std::unique_ptr<TransferEngine>> make_thread_engine(int fd, MoveBytes move = &move_bytes);

/// How long the end of an engine waits.
constexpr std::chrono::seconds kEngineEnd{10};

}  // namespace hanji::base
