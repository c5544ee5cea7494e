#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hanji/base/status.h"
#include "hanji/comm/nccl/options.h"

namespace hanji::comm::nccl {

/// The entry points of NCCL that we call, declared here so that no header of CUDA is needed.
/// Numbers and layouts are those of nccl.h, which keeps them from release to release.
using Comm = void*;    // ncclComm_t
using Handle = void*;  // cudaStream_t

struct UniqueId {
  char bytes[128];  // passed by value
};
static_assert(sizeof(UniqueId) == 128);

// ncclResult_t
enum Answer : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };

// ncclDataType_t
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
};

// ncclRedOp_t
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

/// Each int is an ncclResult_t, except what error_string and last_error say.
struct Api {
  int (*version)(int*) = nullptr;
  int (*unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Comm*, int size, UniqueId, int rank) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*async_error)(Comm, int* result) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int type, int op, Comm, Handle) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int type, int root, Comm, Handle) = nullptr;
  int (*reduce)(const void*, void*, size_t, int type, int op, int root, Comm, Handle) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int type, Comm, Handle) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, Comm, Handle) = nullptr;
  int (*send)(const void*, size_t, int type, int peer, Comm, Handle) = nullptr;
  int (*recv)(void*, size_t, int type, int peer, Comm, Handle) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
};

/// NCCL, loaded at run time. It stays loaded: its threads may outlive every communicator.
class Library {
 public:
  /// Sets `options.variables`, then loads: NCCL reads its variables when it starts.
  /// Errors  not_found with the loader's reason; unsupported if an entry is missing or the library
  ///         is older than kOldest; invalid_argument for a variable that is not NCCL's.
  static Result<std::shared_ptr<const Library>> load(const Options& options);

  const Api& api() const { return api_; }
  /// major * 10000 + minor * 100 + patch, e.g. 22703 for 2.27.3.
  int version() const { return version_; }
  /// "ncclAllReduce: unhandled system error (socket closed)"; ok for kSuccess and kInProgress.
  Status status(int result, const std::string& call, Comm comm = nullptr) const;

  static constexpr int kOldest = 21000;  ///< 2.10, the first with averages and bfloat16.

 private:
  Api api_;
  int version_ = 0;
};

/// "2.27.3" of 22703.
std::string version_text(int version);

}  // namespace hanji::comm::nccl
