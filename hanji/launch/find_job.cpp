#include "hanji/launch/find_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/shm/snapshot.h"

namespace hanji::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLink = "/memfd:hanji (deleted)";  // of base::SharedMemory "hanji"

std::string process_name(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  for (char& c : name) c = c >= ' ' && c <= '~' ? c : '?';
  return name;
}

Status not_allowed(pid_t pid) {
  return base::invalid_argument(fmt::format(
      "process {} ({}): permission denied to look into it, for it belongs to another user or is "
      "protected; run `hanji debug` as its user or as root",
      pid, process_name(pid)));
}

/// How many ranks are or were in it: a process may have segments of its own beside its job's.
int num_joined(const base::Fd& segment) {
  const auto snapshot = shm::take_snapshot(segment, 0);
  if (!snapshot.ok()) return -1;
  int joined = 0;
  for (const shm::RankSnapshot& rank : snapshot->ranks) {
    joined += rank.presence != shm::RankPresence::kNeverCame;
  }
  return joined;
}

Result<FoundJob> choose(pid_t pid, std::vector<base::Fd> segments) {
  FoundJob job{base::Fd(), pid};
  int most = -1;
  for (base::Fd& segment : segments) {
    const int joined = num_joined(segment);
    if (joined <= most) continue;
    most = joined;
    job.segment = std::move(segment);
  }
  if (job.segment.valid()) return job;
  return shm::take_snapshot(segments.front(), 0).status().at(fmt::format("process {}", pid));
}

Result<FoundJob> find_in_process(pid_t pid) {
  const fs::path folder = fmt::format("/proc/{}/fd", pid);
  std::error_code error;
  if (!fs::exists(folder.parent_path(), error)) {
    return base::not_found(fmt::format(
        "no process {} lives here; `pgrep -a hanji` lists launchers and ranks of this host", pid));
  }
  std::vector<base::Fd> segments;
  auto entry = fs::directory_iterator(folder, error);
  if (error.value() == EACCES || error.value() == EPERM) return not_allowed(pid);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;  // Descriptors come and go while we look.
    if (fs::read_symlink(entry->path(), gone) != kLink) continue;
    base::Fd fd(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() && (errno == EACCES || errno == EPERM)) return not_allowed(pid);
    if (fd.valid()) segments.push_back(std::move(fd));
  }
  if (!segments.empty()) return choose(pid, std::move(segments));
  return base::invalid_argument(fmt::format(
      "process {} ({}) is no launcher and no rank of a running job of hanji: it holds no shared "
      "memory of one; give the process of `hanji run`, of `hanji train` or of a rank",
      pid, process_name(pid)));
}

std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

struct Process {
  pid_t pid;
  std::string host;
};

/// The launcher first, then the ranks.
Result<std::vector<Process>> read_roster(const fs::path& path) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, size_t{1} << 20));
  const auto json = base::parse_json(text);
  if (!json.ok()) return json.status().at(path.string());
  std::vector<Process> processes;
  const auto add = [&](const base::Json& entry) {
    if (!entry.is_object() || !entry.contains("pid") || !entry["pid"].is_number_integer()) return;
    const auto pid = entry["pid"].get<int64_t>();
    if (pid < 1 || pid > INT32_MAX) return;
    const bool named = entry.contains("host") && entry["host"].is_string();
    processes.push_back({static_cast<pid_t>(pid), named ? entry["host"].get<std::string>() : ""});
  };
  if (json->is_object() && json->contains("launcher")) add((*json)["launcher"]);
  if (json->is_object() && json->contains("ranks")) {
    for (const base::Json& rank : (*json)["ranks"]) add(rank);
  }
  if (!processes.empty()) return processes;
  return base::corrupt(path.string() + " names no process; give a process id instead");
}

Status no_run_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    return base::not_found(fmt::format(
        "{}: no such folder, and no process id; give the folder of a run or the process id of its "
        "launcher",
        folder.string()));
  }
  if (fs::exists(folder / "plan.json", error)) {
    return base::not_found(
        fmt::format("{}: this run has ended, for it has no ranks.json; its logs tell how: {}",
                    folder.string(), (folder / "logs").string()));
  }
  return base::not_found(fmt::format(
      "{}: no run lives in this folder (there is no ranks.json); for programs under `hanji run` "
      "give its --logs folder or the process id of the launcher",
      folder.string()));
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;  // a folder that is not there has none
  auto entry = fs::directory_iterator(folder / "checkpoints", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().native().starts_with("step_")) return true;
  }
  return false;
}

Result<FoundJob> find_in_folder(const fs::path& folder) {
  const fs::path path = folder / "ranks.json";
  std::error_code error;
  if (!fs::exists(path, error)) return no_run_in(folder);
  HANJI_ASSIGN_OR_RETURN(const auto processes, read_roster(path));
  Status denied;
  for (const Process& process : processes) {
    if (!process.host.empty() && process.host != hostname()) {
      return base::invalid_argument(fmt::format("{}: the run lives on host {}; debug it there",
                                                folder.string(), process.host));
    }
    auto job = find_in_process(process.pid);
    if (job.ok() || job.status().code() == Code::kCorrupt) return job;
    if (!fs::exists(fmt::format("/proc/{}", process.pid), error)) continue;
    if (::access(fmt::format("/proc/{}/fd", process.pid).c_str(), R_OK) != 0) denied = job.status();
  }
  if (!denied.ok()) return denied;
  std::string text =
      fmt::format("{}: this run was killed: ranks.json is left, but none of its {} processes lives",
                  folder.string(), processes.size());
  if (fs::exists(folder / "plan.json", error)) {
    text += fmt::format("; `hanji train --resume --out {}` {}", folder.string(),
                        has_checkpoint(folder) ? "goes on from its last good checkpoint"
                                               : "begins it again, for it has no checkpoint");
  }
  return base::not_found(text);
}

}  // namespace

Result<FoundJob> find_job(std::string_view target) {
  if (target.empty()) {
    return base::invalid_argument("debug: give the folder of a run or a process id");
  }
  if (target.find_first_not_of("0123456789") != target.npos) return find_in_folder(target);
  const std::optional<int> pid = parse_integer(target);
  if (pid && *pid > 0) return find_in_process(*pid);
  return base::invalid_argument(fmt::format(
      "debug: {} is no process id; give that of a launcher or rank, or the folder of a run",
      target));
}

}  // namespace hanji::launch
