#include "hanji/cli/bench/side.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "hanji/base/clock.h"
#include "hanji/base/env.h"
#include "hanji/base/file.h"

namespace hanji::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 10s;  // to end after the last request
constexpr std::string_view kFolderPrefix = "hanji-bench-run-";
constexpr std::chrono::seconds kSettled = 2s;  // from a folder's making to its lock, at most

Result<base::Fd> make_pipe(const std::filesystem::path& path, int flags) {
  if (::mkfifo(path.c_str(), 0600) != 0) return base::from_errno("mkfifo " + path.string(), errno);
  // Open for both: neither end waits for the other to open.
  base::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags));
  if (!fd.valid()) return base::from_errno("open " + path.string(), errno);
  return fd;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return base::from_errno("write a request", errno);
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// What is there; false once it is a whole line.
bool read_more(int fd, std::string& line) {
  char block[16 << 10];
  const ssize_t got = ::read(fd, block, sizeof block);
  if (got > 0) line.append(block, static_cast<size_t>(got));
  return line.empty() || line.back() != '\n';
}

// The last lines that anybody wrote to a log: peers say there why they failed.
std::string end_of_logs(const std::filesystem::path& folder) {
  const auto files = base::list_files(folder);
  if (!files.ok()) return "";
  for (const auto& file : *files) {
    if (!file.filename().string().starts_with("rank.")) continue;
    const auto text = base::read_file(file);
    if (!text.ok() || text->empty()) continue;
    const std::string end = text->size() > 400 ? "..." + text->substr(text->size() - 400) : *text;
    return "; its log: " + end;
  }
  return "";
}

}  // namespace

Result<BenchFolder> BenchFolder::make() {
  const std::filesystem::path parent = base::read(base::Variable::kTmpDir).value_or("/tmp");
  sweep(parent);
  std::string path = parent / (std::string(kFolderPrefix) + "XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return base::from_errno("make folder " + path, errno);
  HANJI_ASSIGN_OR_RETURN(auto lock, base::FolderLock::take(path, base::Deadline::after(0s)));
  return BenchFolder(path, std::move(lock));
}

// A driver that was killed has left its folder, and nobody holds that folder's lock.
void BenchFolder::sweep(const std::filesystem::path& parent) {
  std::error_code ignored;  // what cannot be listed or removed is somebody else's
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kFolderPrefix)) continue;
    struct stat about {};
    const bool mine = ::lstat(entry.path().c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
                      about.st_uid == ::geteuid();
    const bool settled = base::wall_ns() / 1'000'000'000 - about.st_mtime > kSettled.count();
    if (!mine || !settled) continue;
    const auto lock = base::FolderLock::take(entry.path(), base::Deadline::after(0s));
    if (!lock.ok()) continue;
    [[maybe_unused]] const Status removed = base::remove_tree(entry.path());
  }
}

BenchFolder::~BenchFolder() {
  if (path_.empty()) return;
  at_signal_.reset();
  [[maybe_unused]] const Status removed = base::remove_tree(path_);  // nobody is left to tell
}

Result<std::unique_ptr<Side>> Side::make(std::string name, std::filesystem::path folder,
                                         int ranks) {
  auto side = std::unique_ptr<Side>(new Side(std::move(name), std::move(folder)));
  HANJI_RETURN_IF_ERROR(side->open_pipes(ranks));
  return side;
}

Status Side::open_pipes(int ranks) {
  HANJI_RETURN_IF_ERROR(base::make_directories(folder_));
  for (int rank = 0; rank < ranks; ++rank) {
    HANJI_ASSIGN_OR_RETURN(auto request, make_pipe(folder_ / fmt::format("request.{}", rank), 0));
    HANJI_ASSIGN_OR_RETURN(auto answer,
                           make_pipe(folder_ / fmt::format("answer.{}", rank), O_NONBLOCK));
    requests_.push_back(std::move(request));
    answers_.push_back(std::move(answer));
  }
  return {};
}

Side::~Side() {
  requests_.clear();
  if (!outcome_.valid()) return;
  if (outcome_.wait_for(kGrace) != std::future_status::ready) kill_all();
  outcome_.wait();
}

void Side::start(launch::LaunchOptions options) {
  options.signals = launch::Signals::kLeave;
  options.on_event = [this](const launch::RankEvent& event) {
    if (event.kind != launch::RankEventKind::kStarted) return;
    const std::lock_guard lock(mutex_);
    pids_.push_back(event.pid);
  };
  // Ranks die with the thread that started them, so it stays until they have ended.
  outcome_ = std::async(std::launch::async,
                        [options = std::move(options)] { return launch::launch(options); });
}

void Side::kill_all() {
  const std::lock_guard lock(mutex_);
  for (const pid_t pid : pids_) ::kill(-pid, SIGKILL);  // each leads a group of its own
}

bool Side::has_ended() const { return outcome_.wait_for(0s) == std::future_status::ready; }

Status Side::why_ended() {
  const auto outcome = outcome_.get();
  const std::string why = outcome.ok() ? outcome->cause : outcome.status().message();
  return base::peer_lost(fmt::format("{} ended: {}{}", name_,
                                     why.empty() ? "before it answered" : why,
                                     end_of_logs(folder_ / "logs")));
}

Status Side::read_lines(std::vector<std::string>& lines, std::chrono::seconds timeout) {
  const auto deadline = base::Deadline::after(timeout);
  std::vector<pollfd> waiting;
  for (const base::Fd& fd : answers_) waiting.push_back({fd.get(), POLLIN, 0});
  size_t missing = waiting.size();
  while (missing > 0) {
    if (::poll(waiting.data(), waiting.size(), 100) < 0 && errno != EINTR) {
      return base::from_errno("poll answers", errno);
    }
    bool silent = true;
    for (size_t rank = 0; rank < waiting.size(); ++rank) {
      if ((waiting[rank].revents & POLLIN) == 0) continue;
      silent = false;
      if (read_more(waiting[rank].fd, lines[rank])) continue;
      waiting[rank].fd = -1;  // passed over by poll
      waiting[rank].revents = 0;
      --missing;
    }
    if (silent && has_ended()) return why_ended();
    if (missing > 0 && deadline.passed()) {
      kill_all();  // a late answer would be taken for the next one
      return base::timeout(
          fmt::format("{}: no answer within {} s; -T allows more", name_, timeout.count()));
    }
  }
  return {};
}

Result<std::vector<report::BenchAnswer>> Side::ask(const std::string& line,
                                                   std::chrono::seconds timeout) {
  if (!outcome_.valid()) return base::peer_lost(name_ + " has ended");
  for (const base::Fd& fd : requests_) HANJI_RETURN_IF_ERROR(write_all(fd.get(), line + "\n"));
  std::vector<std::string> lines(answers_.size());
  HANJI_RETURN_IF_ERROR(read_lines(lines, timeout));
  std::vector<report::BenchAnswer> answers;
  for (std::string& text : lines) {
    text.pop_back();
    HANJI_ASSIGN_OR_RETURN(auto answer, report::parse_answer(text));
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace hanji::cli
