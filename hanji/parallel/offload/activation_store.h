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
  int64_t window_bytes = int64_t{64} << 20;    ///< Being written, or read ahead, at one time.
  int64_t smallest_bytes = int64_t{64} << 10;  ///< Smaller tensors stay in memory.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  ///< Of a wait for the disk.
  base::ScratchEngine engine = base::ScratchEngine::kAuto;
  const base::Log* log = nullptr;  ///< Told if the kernel refuses io_uring.
};

/// Offloads tensors saved for backward to an unlinked file: written while
/// forward goes on, read ahead, last one first, while backward runs.
///
///   hanji::ActivationStore store({.folder = "/scratch"});
///   auto offload = store.offload();                   // this thread, until its end
///   for (auto& batch : loader) loss(net->forward(batch.x), batch.y).backward();
///
/// While a scope of any thread is open, autograd's default engine, of which a process has one, is
/// one of ours that asks this store; after the last it is libtorch's own again. Threads without a
/// scope save as before. A graph may run backward after the scope and the store are gone: it keeps
/// the file.
///
/// Works with every strategy. With checkpointed() in its scope the inputs of segments go to the
/// file, and nothing else is kept. Parameters, small tensors and what is no plain memory stay.
/// Result  the same bits.
/// Cost    memory: window_bytes each way. A copy of what is saved, once however many operations save
///         it, and its bytes to the disk and back. The file grows to the most that was in it.
/// Errors  forward and backward throw kTimeout, kOutOfMemory (a full disk) and kCorrupt (somebody
///         has cut the file), naming the folder; kUnsupported for tensors that are not on the CPU,
///         and where autograd's default engine is not libtorch's own, as in a Python process.
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
  /// Takes autograd's default engine of this process until the end of the scope.
  Scope offload();

  /// In the file now, for graphs that are alive.
  int64_t stored_bytes() const;
  /// How bytes move: "io_uring, past the page cache".
  const std::string& description() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hanji::parallel
