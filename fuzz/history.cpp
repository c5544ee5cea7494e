// The log of a run that goes on: cut back to its checkpoint, whatever lies in it.
#include "hanji/train/history.h"

#include <unistd.h>

#include <string>

#include "fuzz/input.h"
#include "hanji/base/file.h"

namespace {

/// In memory, one per process; gone when the process ends as it should.
class LogFile {
 public:
  ~LogFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/dev/shm/hanji-fuzz-history-" + std::to_string(::getpid());
};

}  // namespace

/// The first byte is the step of the checkpoint.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  static const LogFile file;
  if (size == 0) return 0;
  const auto text = fuzz::text_of(data + 1, size - 1);
  base::throw_if_error(base::write_file_atomic(file.path(), text));
  const auto once = train::rewind_log(file.path(), data[0]);
  if (!once.ok()) return 0;
  const std::string kept = base::read_file(file.path()).or_throw();
  fuzz::require(text.starts_with(kept), "what stays is the beginning of what was");
  const auto twice = train::rewind_log(file.path(), data[0]);
  fuzz::require(twice.ok() && twice->logged.size() == once->logged.size(),
                "what stays is read in the same way");
  fuzz::require(base::read_file(file.path()).or_throw() == kept, "and nothing more goes");
  return 0;
}
