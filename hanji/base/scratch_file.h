#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "hanji/base/fd.h"
#include "hanji/base/log.h"

namespace hanji::base {

class TransferEngine;

/// What carries out the transfers of a scratch file.
enum class ScratchEngine : uint8_t {
  kAuto,    ///< io_uring, or a thread where the kernel refuses it.
  kRing,    ///< io_uring, or an error.
  kThread,  ///< A thread that calls pread(2) and pwrite(2).
};

struct ScratchOptions {
  ScratchEngine engine = ScratchEngine::kAuto;
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  ///< Of each wait.
  const Log* log = nullptr;  ///< Told, when the file is made, that it does without io_uring.
};

/// Room on a disk for what is too large for memory, read and written in the background.
///
/// The file has no name (O_TMPFILE, or unlinked as soon as it is open), so nothing is left of it
/// however the process ends. It is read and written past the kernel's cache of pages where the file
/// system can do that. What was never written reads as zeros.
/// Units   places, lengths and addresses of memory are multiples of kBlock.
/// Errors  say what was done, in which folder, why it failed and what to do: kOutOfMemory for a full
///         disk or a limit, kCorrupt if somebody has cut the file, kTimeout, kNotFound.
/// Thread  one at a time.
class ScratchFile {
 public:
  static constexpr int64_t kBlock = 4096;
  using Memory = std::shared_ptr<std::byte>;
  using Ticket = uint64_t;

  /// Takes `bytes` of the disk at once where the file system can, so that it is not full later.
  static Result<ScratchFile> create(const std::filesystem::path& folder, int64_t bytes,
                                    const ScratchOptions& options = {});
  ScratchFile(ScratchFile&&) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  /// Waits, ten seconds at most, for what is under way.
  ~ScratchFile();

  /// Starts a transfer, which holds the memory; to be waited for, once.
  Result<Ticket> read(int64_t at, Memory memory, int64_t bytes);
  Result<Ticket> write(int64_t at, Memory memory, int64_t bytes);
  Status wait(Ticket ticket);

  /// Takes more of the disk.
  Status grow(int64_t bytes);
  int64_t num_bytes() const { return num_bytes_; }
  /// The bytes themselves, to be read and changed, while no transfer touches them.
  Result<Memory> map(int64_t at, int64_t bytes) const;

  /// "io_uring, past the page cache".
  const std::string& description() const { return description_; }
  int descriptor() const { return fd_.get(); }

 private:
  struct Open {
    bool writes;
    int64_t at;
    int64_t bytes;
  };
  ScratchFile(Fd fd, std::filesystem::path folder, const ScratchOptions& options);
  Status choose_engine(const Log* log);
  Result<Ticket> start(bool writes, int64_t at, Memory memory, int64_t bytes);
  Status check_range(int64_t at, int64_t bytes) const;
  std::string words(const Open& open) const;

  Fd fd_;
  std::filesystem::path folder_;
  ScratchEngine wanted_;
  std::chrono::nanoseconds timeout_;
  std::string description_;
  std::unique_ptr<TransferEngine> engine_;  ///< After fd_: ends before it.
  std::map<Ticket, Open> open_;
  std::map<Ticket, Status> ended_;
  Ticket next_ = 1;
  int64_t num_bytes_ = 0;
};

/// Memory for transfers, filled with zeros. Errors: kOutOfMemory.
Result<ScratchFile::Memory> scratch_memory(int64_t bytes);

/// `bytes` rounded up to whole blocks.
constexpr int64_t whole_blocks(int64_t bytes) {
  return (bytes + ScratchFile::kBlock - 1) / ScratchFile::kBlock * ScratchFile::kBlock;
}

}  // namespace hanji::base
