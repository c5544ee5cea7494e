#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "hanji/base/shared_memory.h"
#include "hanji/base/units.h"
#include "hanji/cli/doctor/gather.h"
#include "hanji/topology/limits.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace hanji::cli {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::string limit_text(rlim_t value, bool is_bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return is_bytes ? base::format_bytes(static_cast<int64_t>(value)) : std::to_string(value);
}

struct Limit {
  int resource;
  const char* name;
  rlim_t least;  ///< Below it hanji works with few ranks only; 0: never asked for.
  bool is_bytes;
  const char* advice;
};

// A rank of a full host holds its segment, control socket and a pidfd of each rank beside libtorch's files; it runs
// OpenMP's threads and one watchdog.
constexpr rlim_t kLeastTasks = 256;
constexpr Limit kLimits[] = {
    {RLIMIT_NOFILE, "open files", 128, false, "ulimit -n 1024 before the start"},
    {RLIMIT_NPROC, "processes and threads", kLeastTasks, false, "ulimit -u 4096 before the start"},
    {RLIMIT_MEMLOCK, "locked memory", 0, true, ""},
    {RLIMIT_FSIZE, "largest file", rlim_t{1} << 30, true, "ulimit -f unlimited before the start"}};

Finding check(const Limit& one) {
  struct rlimit found {};
  ::getrlimit(one.resource, &found);
  Finding finding{"limits", one.name,
                  fmt::format("{} of at most {}", limit_text(found.rlim_cur, one.is_bytes),
                              limit_text(found.rlim_max, one.is_bytes))};
  if (found.rlim_cur < one.least) {
    finding.verdict = Verdict::kBroken;
    finding.advice = one.advice;
  }
  return finding;
}

/// A container's bound on processes and threads, which ulimit does not show.
Findings check_tasks() {
  const int64_t free = topology::read_limits().free_tasks;
  if (free == INT64_MAX) return {};
  Finding finding{"limits", "tasks of the cgroup", fmt::format("{} may still start", free)};
  if (free < static_cast<int64_t>(kLeastTasks)) {
    finding.verdict = Verdict::kBroken;
    finding.advice = "raise pids.max of the control group (docker run --pids-limit)";
  }
  return {finding};
}

/// The memory that the heap lies in: a sealed memfd, backed, and asked for huge pages.
Findings check_shared_memory() {
  const std::string advice =
      "ranks share memory through memfd_create(2), which a sandbox or a cgroup forbids here";
  const auto shared = base::SharedMemory::create("hanji-doctor", 4 * kHugePage);
  const Status grown = shared.ok() ? shared->grow(0, 4 * kHugePage) : shared.status();
  if (!grown.ok()) {
    return {{"shared memory", "memfd", grown.message(), Verdict::kBroken, advice}};
  }
  Findings found = {{"shared memory", "memfd", "8 MiB made, sealed and backed"}};
  const auto address = reinterpret_cast<uintptr_t>(shared->data());
  const uintptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  std::memset(reinterpret_cast<void*>(first), 1, kHugePage);
  if (::madvise(reinterpret_cast<void*>(first), kHugePage, MADV_COLLAPSE) == 0) {
    found.push_back({"shared memory", "huge pages", "granted by MADV_COLLAPSE"});
  } else {
    found.push_back({"shared memory", "huge pages", std::strerror(errno), Verdict::kNote,
                     "the heap works with small pages, some percent slower"});
  }
  return found;
}

Finding check_dev_shm() {
  struct statfs info {};
  if (::statfs("/dev/shm", &info) != 0) {
    return {"shared memory", "/dev/shm", std::strerror(errno), Verdict::kNote,
            "hanji does without it; other libraries may not"};
  }
  const auto bytes = [&](auto blocks) {
    return base::format_bytes(static_cast<int64_t>(blocks) * info.f_bsize);
  };
  return {
      "shared memory", "/dev/shm",
      fmt::format("{} free of {} (hanji needs none)", bytes(info.f_bavail), bytes(info.f_blocks))};
}

}  // namespace

Findings check_limits() {
  Findings found = check_shared_memory();
  found.push_back(check_dev_shm());
  for (const Limit& one : kLimits) found.push_back(check(one));
  for (const Finding& one : check_tasks()) found.push_back(one);
  return found;
}

}  // namespace hanji::cli
