#include "hanji/comm/nccl/internal/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "hanji/base/env.h"

namespace hanji::comm::nccl {
namespace {

/// Looks entries up, and remembers the first that is missing.
class Finder {
 public:
  explicit Finder(void* handle) : handle_(handle) {}

  template <class Function>
  void find(const char* name, Function*& entry) {
    entry = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (entry == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

Result<Api> find_all(void* handle, const std::string& library) {
  Api api;
  Finder finder(handle);
  finder.find("ncclGetVersion", api.version);
  finder.find("ncclGetUniqueId", api.unique_id);
  finder.find("ncclCommInitRank", api.init_rank);
  finder.find("ncclCommDestroy", api.destroy);
  finder.find("ncclCommAbort", api.abort);
  finder.find("ncclCommGetAsyncError", api.async_error);
  finder.find("ncclGetErrorString", api.error_string);
  finder.find("ncclAllReduce", api.all_reduce);
  finder.find("ncclBroadcast", api.broadcast);
  finder.find("ncclReduce", api.reduce);
  finder.find("ncclAllGather", api.all_gather);
  finder.find("ncclReduceScatter", api.reduce_scatter);
  finder.find("ncclSend", api.send);
  finder.find("ncclRecv", api.recv);
  finder.find("ncclGroupStart", api.group_start);
  finder.find("ncclGroupEnd", api.group_end);
  const std::string missing = finder.missing();
  finder.find("ncclGetLastError", api.last_error);  // since 2.13
  if (missing.empty()) return api;
  return base::unsupported(fmt::format(
      "NCCL: {} has no {}; give the path of NCCL 2.10 or newer, such as the one that comes with "
      "libtorch for CUDA",
      library, missing));
}

Status set_variables(const Options& options) {
  for (const auto& [name, value] : options.variables) {
    if (!std::string_view(name).starts_with("NCCL_")) {
      return base::invalid_argument(
          fmt::format("NCCL: {} is not one of its variables, which begin with NCCL_", name));
    }
  }
  for (const auto& [name, value] : options.variables) {
    HANJI_RETURN_IF_ERROR(base::set_for_libraries(name, value));
  }
  return {};
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<std::shared_ptr<const Library>> Library::load(const Options& options) {
  HANJI_RETURN_IF_ERROR(set_variables(options));
  void* handle = ::dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return base::not_found(
        fmt::format("NCCL: {}; install it (libtorch for CUDA from PyPI brings nvidia-nccl), or "
                    "give its path",
                    reason == nullptr ? options.library : reason));
  }
  auto library = std::make_shared<Library>();
  HANJI_ASSIGN_OR_RETURN(library->api_, find_all(handle, options.library));
  HANJI_RETURN_IF_ERROR(
      library->status(library->api_.version(&library->version_), "ncclGetVersion"));
  if (library->version_ < kOldest) {
    return base::unsupported(fmt::format("NCCL: {} is version {}; 2.10 or newer is needed",
                                         options.library, version_text(library->version_)));
  }
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::status(int result, const std::string& call, Comm comm) const {
  if (result == kSuccess || result == kInProgress) return {};
  std::string message = fmt::format("{}: {}", call, api_.error_string(result));
  const char* more = api_.last_error == nullptr ? nullptr : api_.last_error(comm);
  if (more != nullptr && *more != 0) message += fmt::format(" ({})", more);
  if (result == kRemoteError) return base::peer_lost(message);
  return base::internal(message);
}

}  // namespace hanji::comm::nccl
