#include "hanji/base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "hanji/base/advice.h"

namespace hanji::base {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kCorrupt: return "corrupt";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfMemory: return "out_of_memory";
    case Code::kTimeout: return "timeout";
    case Code::kPeerLost: return "peer_lost";
    case Code::kMismatch: return "mismatch";
    case Code::kCancelled: return "cancelled";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Status Status::at(std::string_view where) const {
  if (ok()) return *this;
  return {code_, std::string(where) + ": " + message_};
}

std::string Status::to_string() const {
  return ok() ? "ok" : std::string(name_of(code_)) + ": " + message_;
}

Status invalid_argument(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}
Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
Status unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }
Status out_of_memory(std::string message) { return {Code::kOutOfMemory, std::move(message)}; }
Status timeout(std::string message) { return {Code::kTimeout, std::move(message)}; }
Status peer_lost(std::string message) { return {Code::kPeerLost, std::move(message)}; }
Status mismatch(std::string message) { return {Code::kMismatch, std::move(message)}; }
Status cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
Status internal(std::string message) { return {Code::kInternal, std::move(message)}; }

namespace {

/// The limit behind an error that does not say it; empty for other errors.
std::string describe_limit(int error) {
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return "; this process may have " + std::to_string(limit.rlim_cur) + " open files";
}

}  // namespace

Status from_errno(std::string_view what, int error) {
  const std::string_view advice = advice_for(error);
  std::string message(what);
  message.append(": ").append(std::strerror(error)).append(describe_limit(error));
  if (!advice.empty()) message.append("; ").append(advice);
  if (error == ENOENT) return not_found(message);
  if (error == ENOMEM || error == ENOSPC || error == EDQUOT) return out_of_memory(message);
  // EPERM is of more than paths: what may be done about it depends on the call.
  return advice.empty() && error != EPERM ? internal(message) : invalid_argument(message);
}

void throw_if_error(const Status& status) {
  if (!status.ok()) throw Error(status);
}

}  // namespace hanji::base
