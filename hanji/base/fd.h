#pragma once

#include "hanji/base/status.h"

namespace hanji::base {

enum class Inherit : bool { kNo, kYes };

/// Owns one file descriptor and closes it at the end of its life.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Gives the descriptor away; the caller closes it.
  int release();
  /// Closes now. Linux frees the number whatever close(2) says, so there is nothing to report.
  void reset();
  /// A second descriptor of the same open file, closed on exec.
  Result<Fd> duplicate() const;
  /// Whether a program started by exec keeps the descriptor. Descriptors made here do not.
  Status set_inherit(Inherit inherit) const;

 private:
  int fd_;
};

}  // namespace hanji::base
