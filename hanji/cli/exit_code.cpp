#include "hanji/cli/exit_code.h"

#include <csignal>
#include <new>
#include <string_view>

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
  const bool is_of_memory =
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
  if (!is_of_memory) return base::internal(error.what());
  return base::out_of_memory("there is not enough memory for it; ask for less");
}

int stop_code(int stop_signal) {
  if (stop_signal == 0) return 0;
  return stop_signal == SIGINT ? kInterrupted : kRequeue;
}

}  // namespace hanji::cli
