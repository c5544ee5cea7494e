#include "hanji/cli/exit_code.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>

#include "hanji/base/exception.h"
#include "hanji/base/limits.h"

namespace hanji::cli {

int exit_code(Code code) {
  switch (code) {
    case Code::kOk: return 0;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported: return kUsage;
    case Code::kCorrupt: return 3;
    case Code::kOutOfMemory: return 4;
    case Code::kTimeout: return 5;
    case Code::kPeerLost:
    case Code::kMismatch:
    case Code::kCancelled: return 6;
    case Code::kInternal: return 70;
  }
  return 70;
}

Status status_of(const std::exception& error) {
  const auto* refused = dynamic_cast<const std::system_error*>(&error);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) {
    return base::no_more_processes("start a thread", EAGAIN);
  }
  if (!base::is_out_of_memory(error)) return base::internal(error.what());
  if (base::is_out_of_gpu_memory(error)) {
    const std::string_view what = error.what();
    return base::out_of_memory(
        fmt::format("{}; lower train.micro_batch, the samples that are on the "
                    "GPU at once",
                    what.substr(0, what.find('\n'))));
  }
  return base::out_of_memory("there is not enough memory for it; ask for less");
}

int stop_code(int stop_signal) {
  if (stop_signal == 0) return 0;
  return stop_signal == SIGINT ? kInterrupted : kRequeue;
}

}  // namespace hanji::cli
