#pragma once

#include <string>
#include <string_view>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// Copies what a rank writes to its log and to one of the launcher's own streams.
///
/// A reader of the launcher's output who stops reading, or goes away, never stops the rank: what
/// does not fit into the backlog is left out there, and said; the log has everything.
class Echo {
 public:
  /// `to` is STDOUT_FILENO or STDERR_FILENO. `log` is shared with other echoes of the rank.
  static Result<Echo> create(int log, int to);

  /// The end that becomes the rank's stdout or stderr.
  int write_end() const { return write_end_.get(); }
  /// Call once the rank has it.
  void close_write_end() { write_end_.reset(); }
  /// To poll for reading; -1 once the rank has closed it.
  int read_end() const { return read_end_.get(); }
  /// To poll for writing; -1 while nothing waits to be written.
  int waiting_for() const { return backlog_.empty() ? -1 : to_; }

  /// Moves what can be moved without waiting.
  void pump();
  /// Waits until the backlog is written, at most until `deadline`.
  void finish(base::Deadline deadline);

 private:
  void read_available();
  void write_possible();
  void keep(std::string_view text);

  base::Fd read_end_;
  base::Fd write_end_;
  int log_ = -1;
  int to_ = -1;
  std::string backlog_;
  size_t left_out_ = 0;
};

}  // namespace hanji::launch
