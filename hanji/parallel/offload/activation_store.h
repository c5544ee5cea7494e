#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "hanji/base/scratch_file.h"
#include "hanji/lens/saved_tensors.h"

namespace hanji::parallel {

struct ActivationOptions {
  std::filesystem::path folder;                ///< Of a local disk.
  int64_t window_bytes = int64_t{64} << 20;    ///< Of pending writes, and of prefetched data.
  int64_t smallest_bytes = int64_t{64} << 10;  ///< Smaller tensors stay in memory.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  ///< Of a wait for the disk.
  base::ScratchEngine engine = base::ScratchEngine::kAuto;
  const base::Log* log = nullptr;  ///< Logs that the kernel rejects io_uring.
};

/// Offloads tensors saved for backward to an unlinked file: written during forward; backward prefetches
/// them in reverse order.
///
///   hanji::ActivationStore store({.folder = "/scratch"});
///   auto offload = store.offload();                   // this thread, until its end
///   for (auto& batch : loader) loss(net->forward(batch.x), batch.y).backward();
///
/// While a scope of any thread is open, hanji replaces autograd's default engine, of which a process has
/// one, by an engine that uses this store; after the last scope it restores libtorch's own. Threads
/// without a scope are not affected. A graph may run backward after the scope and the store are
/// destroyed: it keeps the file.
///
/// Works with every strategy. With checkpointed() in its scope, only the inputs of segments are kept, in
/// the file. Parameters, small tensors and tensors without plain memory are not offloaded.
/// Result  the same bits.
/// Cost    memory: window_bytes for writes and for reads. One copy of each saved tensor, also if several
///         operations save it, and its bytes to the disk and back. The file grows to its maximum.
/// Errors  forward and backward throw kTimeout, kOutOfMemory (a full disk) and kCorrupt (a truncated
///         file), naming the folder; kUnsupported for tensors that are not on the CPU, and if
///         autograd's default engine is not libtorch's own, as in a Python process.
/// Thread  scopes on one thread; backward() may run on any.
/// Source  Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5.1.2.
class ActivationStore {
 public:
  explicit ActivationStore(const ActivationOptions& options);
  ~ActivationStore();

  class [[nodiscard]] Scope {
   public:
    explicit Scope(lens::Saver& saver) : scope_(saver) {}

   private:
    lens::SaverScope scope_;
  };
  /// Replaces autograd's default engine of this process until the end of the scope.
  Scope offload();

  /// Bytes in the file for existing graphs.
  int64_t stored_bytes() const;
  /// How bytes are transferred: "io_uring, past the page cache".
  const std::string& description() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hanji::parallel
