#include "hanji/test/gpu/counts.h"

#include <c10/util/Backtrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>

namespace hanji::test::gpu {
namespace {

class Counts {
 public:
  ~Counts() { write(); }

  /// To the file that the environment names, if it does.
  void write() {
    const std::lock_guard lock(mutex_);
    const char* file = std::getenv("FAKE_GPU_COUNTS");
    if (file == nullptr || values_["operations"] == 0) return;
    std::ofstream out(std::string(file) + "." + std::to_string(::getpid()));
    const char* separator = "{";
    for (const auto& [name, value] : values_) {
      out << separator << "\n  \"" << name << "\": " << value;
      separator = ",";
    }
    out << "\n}\n";
  }

  void add(const std::string& name, int64_t by) {
    const std::lock_guard lock(mutex_);
    values_[name] += by;
  }
  int64_t of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    const int64_t bytes = values_["bytes"];
    values_ = {{"bytes", bytes}, {"peak_bytes", bytes}};
  }
  int64_t add_memory(int64_t by) {
    const std::lock_guard lock(mutex_);
    const int64_t now = values_["bytes"] += by;
    values_["peak_bytes"] = std::max(values_["peak_bytes"], now);
    return now;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> values_;
};

Counts& counts() {
  static Counts all;
  return all;
}

}  // namespace

void count_operation(const std::string& name) {
  counts().add("operations", 1);
  counts().add("operations " + name, 1);
}

void count_synchronization(const std::string& why) {
  static const bool traced = std::getenv("FAKE_GPU_TRACE") != nullptr;
  if (traced) std::cerr << "the host waits: " << why << '\n' << c10::get_backtrace() << '\n';
  counts().add("synchronizations", 1);
  counts().add("synchronizations " + why, 1);
}

void count_copy_to_device(size_t bytes) {
  counts().add("bytes_to_device", static_cast<int64_t>(bytes));
}

void count_copy_to_host(size_t bytes) {
  counts().add("bytes_to_host", static_cast<int64_t>(bytes));
}

Memory count_memory(int64_t bytes) { return {counts().add_memory(bytes)}; }

}  // namespace hanji::test::gpu

extern "C" {

int64_t fake_gpu_count(const char* name) { return hanji::test::gpu::counts().of(name); }
void fake_gpu_reset() { hanji::test::gpu::counts().reset(); }

/// The C library's, which the command calls so that nothing is destroyed at its end.
void _exit(int code) {
  hanji::test::gpu::counts().write();
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
void _Exit(int code) noexcept { ::_exit(code); }

}  // extern "C"
