#include "hanji/base/status.h"

#include <cerrno>
#include <cstring>

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

/// What the user of a path does about it; empty for other errors.
std::string_view hint_of(int error) {
  switch (error) {
    case EACCES: return "; give this user the permission, or name another path";
    case ENOENT: return "; check the path";
    case EROFS: return "; name a path on a disk that can be written";
    case EISDIR: return "; name a file, not a folder";
    case ENOTDIR: return "; name a folder there";
    case EEXIST:
    case ENOTEMPTY: return "; remove what is there, or name another path";
    case ENAMETOOLONG: return "; name a shorter path";
    case ELOOP: return "; name a path without links that lead to themselves";
    case EFBIG: return "; raise the limit on the size of files (ulimit -f), or name another disk";
    case ETXTBSY: return "; end the program that runs from this file, or name another path";
    case ENXIO:
    case ENODEV: return "; name a regular file";
    case EMFILE:
    case ENFILE: return "; raise the limit on open files (ulimit -n)";
    default: return "";
  }
}

}  // namespace

Status from_errno(std::string_view what, int error) {
  const std::string_view hint = hint_of(error);
  std::string message(what);
  message.append(": ").append(std::strerror(error)).append(hint);
  if (error == ENOENT) return not_found(message);
  if (error == ENOMEM || error == ENOSPC || error == EDQUOT) return out_of_memory(message);
  // EPERM is of more than paths: what may be done about it depends on the call.
  return hint.empty() && error != EPERM ? internal(message) : invalid_argument(message);
}

void throw_if_error(const Status& status) {
  if (!status.ok()) throw Error(status);
}

}  // namespace hanji::base
