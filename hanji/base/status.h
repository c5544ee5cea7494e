#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace hanji::base {

/// What the caller can do about a failure; the command maps each to an exit code.
enum class Code {
  kOk,
  kInvalidArgument,  ///< Fix the call or the configuration.
  kNotFound,         ///< Name something that exists.
  kCorrupt,          ///< The bytes are not what they claim to be.
  kUnsupported,      ///< Ask for something that is offered here.
  kOutOfMemory,      ///< Ask `hanji plan` what fits.
  kTimeout,          ///< Somebody did not arrive; restart the group.
  kPeerLost,         ///< A rank died; restart the group.
  kMismatch,         ///< The ranks' calls differ; fix the program.
  kCancelled,        ///< A rank cancelled a call; make a new group.
  kInternal,         ///< A bug of ours.
};

/// The code's name in snake_case, e.g. "invalid_argument".
std::string_view name_of(Code code);

/// Success, or a code with a message that says what, where, why and one way out.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same code, the message prefixed by `where` and ": ". Unchanged if ok.
  Status at(std::string_view where) const;
  /// "code: message", or "ok".
  std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status corrupt(std::string message);
Status unsupported(std::string message);
Status out_of_memory(std::string message);
Status timeout(std::string message);
Status peer_lost(std::string message);
Status mismatch(std::string message);
Status cancelled(std::string message);
Status internal(std::string message);
/// "what: strerror(error)" and a way out, in the code that says whose it is: kInternal if not the user's.
Status from_errno(std::string_view what, int error);

/// What floors above torch throw, because autograd frames pass exceptions and not values.
class Error : public std::runtime_error {
 public:
  explicit Error(const Status& status)
      : std::runtime_error(status.message()), code_(status.code()) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

/// Throws Error unless ok.
void throw_if_error(const Status& status);

/// A value, or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  /// The value, or throws Error: for callers above torch.
  T or_throw() && {
    throw_if_error(status_);
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace hanji::base

namespace hanji {
using base::Code;
using base::Error;
using base::Result;
using base::Status;
}  // namespace hanji

#define HANJI_CONCAT_INNER(a, b) a##b
#define HANJI_CONCAT(a, b) HANJI_CONCAT_INNER(a, b)

/// Returns the Status of `expression` from the enclosing function unless it is ok.
#define HANJI_RETURN_IF_ERROR(expression)                       \
  do {                                                          \
    if (auto hanji_status = (expression); !hanji_status.ok()) { \
      return hanji_status;                                      \
    }                                                           \
  } while (false)

/// HANJI_ASSIGN_OR_RETURN(auto fd, open(path)): the value of a Result, or return its Status.
#define HANJI_ASSIGN_OR_RETURN(left, expression) \
  HANJI_ASSIGN_OR_RETURN_IN(HANJI_CONCAT(hanji_result_, __LINE__), left, expression)
#define HANJI_ASSIGN_OR_RETURN_IN(result, left, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return result.status();                 \
  left = *std::move(result)
