#pragma once

#include "hanji/base/fd.h"

namespace hanji::launch {

/// Wakes a thread that sleeps in poll(2): an eventfd.
class Wake {
 public:
  static Result<Wake> create();

  /// To poll for reading.
  int fd() const { return fd_.get(); }
  /// From any thread.
  void notify() const;
  /// Forgets the notes so far.
  void clear() const;

 private:
  explicit Wake(base::Fd fd) : fd_(std::move(fd)) {}
  base::Fd fd_;
};

}  // namespace hanji::launch
