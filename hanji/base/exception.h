#pragma once

#include <exception>
#include <functional>
#include <string>

#include "hanji/base/status.h"

namespace hanji::base {

/// "std::runtime_error: page 7", of an Error its message alone. Without libtorch's backtrace.
std::string describe_exception(const std::exception_ptr& exception);

/// Whether memory ran out, also in libtorch's allocator, whose error has no type of its own.
bool is_out_of_memory(const std::exception& error);

/// Whether that was a GPU's.
bool is_out_of_gpu_memory(const std::exception& error);

/// A Status for an exception that code of the program threw: the code and message of an Error, kOutOfMemory
/// where memory ran out, else kInvalidArgument with describe_exception().
Status status_of_program(const std::exception_ptr& exception);

/// While it lives, an exception that nobody catches is passed to `tell` as describe_exception(), before it
/// ends this process as ever.
/// Thread  one at a time per process: others that live beside it receive nothing.
class UncaughtReport {
 public:
  using Tell = std::function<void(const std::string& text)>;
  explicit UncaughtReport(Tell tell);
  ~UncaughtReport();
  UncaughtReport(const UncaughtReport&) = delete;
  UncaughtReport& operator=(const UncaughtReport&) = delete;

 private:
  const Tell tell_;
};

}  // namespace hanji::base
