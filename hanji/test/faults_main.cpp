// Faults by command, without torch:
//   hanji_faults kills|stops|hosts NUMBER [SEED] [DELAY_MS]
//                                      random ranks die, or are stopped, at random moments; exit
//                                      code 1 if they are named later than promised. DELAY_MS: by
//                                      watchdogs that tell that late, to see it fail
//   hanji_faults table FILE            measures each fault in each phase and writes the table
//   hanji_faults steps RANKS [I/N]     a rank is killed, or stopped, at each step of each routine;
//                                      I/N: of every N-th way to run one, from the I-th
//   hanji_faults strike FOLDER RANK PHASE KILL|STOP
//                                      the rank of a running `hanji train` that writes to FOLDER
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/test/fault_trial.h"
#include "hanji/test/step_fault.h"
#include "hanji/test/strike_in_phase.h"

using namespace hanji;

namespace {

constexpr int kRepeats = 5;

struct Row {
  const char* kind;
  const char* injected;
};
constexpr Row kRows[] = {
    {"kill", "SIGKILL"},           {"segv", "a write to address 0x10"},
    {"abort", "abort()"},          {"exception", "an exception"},
    {"exit", "exit(0) too early"}, {"stop", "SIGSTOP for ever"},
    {"hang", "an endless loop"},
};
constexpr const char* kPhases[] = {"forward", "collective", "optimizer", "save"};

/// What no trial here measures: the tests that do are named.
constexpr const char* kSurroundings = R"(
The launcher also shows the stack of a rank that crashed, or that hangs while others wait, with the
names of its functions.

## In time

What is promised, by the program that fails where it is not kept. `./dev test` makes a few trials of each,
and gives the programs watchdogs three times as late as promised, which they must notice; `./dev check`
makes 1,000 kills.

| promise | program |
|---|---|
| a death is named by every survivor within 100 ms (99 of 100) | `hanji_faults kills N` |
| a stopped rank is named within three heartbeats (99 of 100) | `hanji_faults stops N` |
| a death is named on the other host within 1 s (99 of 100) | `hanji_faults hosts N`, tests/hosts_test.py |

## In a training

tests/faults_test.py stops a rank of `hanji train` again and again until it stands in the phase, and kills
it there; `hanji_faults strike` does so by hand.

| injected | in | what must be true | tried in |
|---|---|---|---|
| SIGKILL | forward, a collective, the optimizer, a save | the survivor's log and the last line name rank, process, step and phase within 100 ms; code 6; no process and nothing in /dev/shm is left; the run goes on to the bits of one that was never disturbed | tests/faults_test.py |
| SIGSTOP | the same | the survivor names it as stopped within three heartbeats of 5 s | tests/faults_matrix.py, `./dev check` |
| a cgroup that the test makes has less memory than the ranks' processes need | before any rank | exit 4 with the file that sets the limit and the bytes; skipped where there can be no cgroup | tests/oom_test.py |
| memory runs out in a cgroup that the test makes | a step | the cause is the kernel's OOM killer, with the count that tells, and the limit of the job's cgroup; the same bits after it; skipped, with the reason, where there can be no cgroup | tests/oom_test.py |

## Inside a collective

What is injected below a single step, and where it is tried. `hanji_faults steps RANKS` prints how many
steps there were and how soon the last survivor had named the rank.

| injected | where | what must be true | tried in |
|---|---|---|---|
| SIGKILL | every step of every list of every routine, even and uneven, in the heap, staged and in the line, and of both ends of a channel; 2 to 4 ranks | every survivor gets peer_lost with the rank's name; no output has a wrong byte; the survivors go on in a smaller group | shm/step_fault_test, `./dev check` |
| SIGSTOP, then SIGCONT | the same steps | the watchdogs name it; when it goes on, all calls end as if nothing had been | the same |
| SIGSTOP for good | a step of an all_reduce | timeout at the deadline names the absent rank | shm/step_fault_test |
| a death after any visible operation or store | the flag protocol, in every order | no survivor sleeps on; all get peer_lost | `hanji_protocol_model large` |
| any order of steps and of stores | the flag protocol: 2 ranks, 1 to 3 calls, polling and sleeping; 3 ranks in the larger sizes | no race on words, slots and tensors, no lost wake-up, no deadlock, right values, mismatches on all ranks | test/model/protocol_test, `hanji_protocol_model large` |
| seven bugs in that protocol | one line instead of two, slots reused one sync early, no fence, no release, no acquire, a sleep that does not compare, a late count of sleepers | each is found | test/model/protocol_test |
| another routine, dtype, count, root, op, shares, list, order, group; one call too few or too many | every list of every routine; every routine over Gloo, MPI, memory with Gloo between hosts, and a stand-in for NCCL | mismatch on every rank, both call sites, no byte used | shm/desync_test, comm/desync_test, mpi_test, hierarchical/group_test, nccl_test |

## Bad surroundings

| what is wrong | what happens | tried in |
|---|---|---|
| 64 KiB of /dev/shm | nothing: the shared memory is a memfd | launch/surroundings_test |
| too few descriptors | rejected before anything starts, with the need and the limit | launch/surroundings_test |
| no process or thread more | an error that names the limits | launch/surroundings_test |
| no disk for the logs | the run goes on, a cause is still told | launch/surroundings_test |
| no disk for run.jsonl or TensorBoard | told once, training goes on | train/run_log_test |
| the TensorBoard folder was deleted | made again, and told | train/run_log_test |
| nobody reads stdout any more | the run goes on | tests/faults_test.py |
| `ulimit -f` | an error that names it | tests/faults_test.py |
| a file for offload that is cut, a disk that is full or hangs | an error that names the folder; every later call is rejected; where one rank cannot have its file, none goes on | base/scratch_file_test, parallel/offloaded_shards_test |
| the wall clock jumps by two days | nothing: every wait is on a monotonic clock | launch/surroundings_test |
| files of a dead run | swept, or appended to | launch/surroundings_test, rendezvous_test |
| another run in the same folder | rejected | tests/resume_test.py |
| the same failure three times in a row | no more restarts, a summary | tests/faults_test.py |
| one flipped bit in one replica | tensor and rank, every `comm.check_every` steps | parallel/ddp/data_parallel_test |
)";

std::filesystem::path fresh_folder(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path() / ("hanji_faults_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

/// How soon survivors name a rank, as docs/checkpoints_and_failures.md promises: 99 of 100 of them.
struct TimeBound {
  const char* verb;
  const char* what;
  int signal;
  int hosts;
  double seconds;
};
constexpr double kHeartbeatSeconds = static_cast<double>(test::kFaultHeartbeat.count()) * 1e-3;
constexpr TimeBound kTimeBounds[] = {
    {"kills", "random kills", SIGKILL, 1, 0.1},
    {"stops", "random stops", SIGSTOP, 1, 3 * kHeartbeatSeconds},
    {"hosts", "random kills on two hosts", SIGKILL, 2, 1.0},
};

/// Strikes so often, with the seeds from `strike.seed` on.
int keep(const TimeBound& bound, int64_t number, test::RandomStrike strike) {
  const auto root = fresh_folder(bound.verb);
  strike.signal = bound.signal;
  strike.hosts = bound.hosts;
  int64_t failed = 0;
  std::vector<double> seconds;
  for (int64_t i = 0; i < number; ++i, ++strike.seed) {
    const auto folder = root / std::to_string(i);
    std::filesystem::create_directories(folder);
    const auto trial = test::strike_at_random(strike, folder);
    if (!trial.ok()) fmt::print("{}\n", trial.status().message());
    failed += !trial.ok();
    if (trial.ok()) seconds.insert(seconds.end(), trial->begin(), trial->end());
    std::filesystem::remove_all(folder);
  }
  std::filesystem::remove_all(root);
  fmt::print("{} {}, {} not named by all\n", number, bound.what, failed);
  if (seconds.empty()) return failed == 0 ? 0 : 1;
  std::sort(seconds.begin(), seconds.end());
  const double p99 = seconds[seconds.size() * 99 / 100];
  const bool kept = p99 <= bound.seconds;
  fmt::print("named by {} survivors after {} (median), {} (99 of 100), {} (at most)\n",
             seconds.size(), base::format_seconds(seconds[seconds.size() / 2]),
             base::format_seconds(p99), base::format_seconds(seconds.back()));
  fmt::print("99 of 100 within {}: {}\n", base::format_seconds(bound.seconds),
             kept ? "kept" : "NOT KEPT");
  return failed == 0 && kept ? 0 : 1;
}

/// Without what changes from run to run.
std::string shorten(std::string cause) {
  const size_t open = cause.find(" (host ");
  const size_t close = cause.find(')', open);
  if (open != std::string::npos && close != std::string::npos) {
    cause.replace(open, close - open + 1, " (host, process, time, step)");
  }
  return cause;
}

Result<std::string> measure(const Row& row, const std::string& phase) {
  std::vector<double> seconds;
  std::string cause;
  int code = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto folder = fresh_folder("table");
    launch::LaunchOptions options;
    options.kill_grace = std::chrono::milliseconds(200);
    HANJI_ASSIGN_OR_RETURN(const test::FaultTrial trial,
                           test::run_fault({.kind = row.kind, .phase = phase}, folder, options));
    for (const double time : trial.seconds_to_see) {
      if (time >= 0) seconds.push_back(time);
    }
    cause = trial.outcome.cause;
    code = trial.outcome.exit_code;
    std::filesystem::remove_all(folder);
  }
  std::sort(seconds.begin(), seconds.end());
  const std::string median =
      seconds.empty() ? "never" : base::format_seconds(seconds[seconds.size() / 2]);
  const std::string last = seconds.empty() ? "never" : base::format_seconds(seconds.back());
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.injected, phase, median, last, code,
                     shorten(cause));
}

int table(const std::string& path) {
  std::string text = fmt::format(
      "# Faults: injected how, seen by whom after how long, and what is said\n\n"
      "Written by `./dev faults`. Three ranks without torch (`hanji/test/faults_rank.cpp`) run\n"
      "collectives in shared memory; rank 1 breaks at step 5. Seconds are from the fault to the\n"
      "line in a survivor's own log, over both survivors and {} runs. The code is the launcher's.\n"
      "A stopped rank is named after three heartbeats, here of 100 ms (5 s by default), one in an\n"
      "endless loop at the deadline, here 1.5 s (comm.deadline, 300 s by default).\n\n"
      "| fault | in | seen after (median) | at most | code | the launcher's last line |\n"
      "|---|---|---|---|---|---|\n",
      kRepeats);
  for (const Row& row : kRows) {
    for (const char* phase : kPhases) {
      const auto line = measure(row, phase);
      if (!line.ok()) return fmt::print(stderr, "{}\n", line.status().message()), 1;
      text += *line;
    }
  }
  const Status written = base::write_file_atomic(path, text + kSurroundings);
  if (!written.ok()) fmt::print(stderr, "{}\n", written.message());
  return written.ok() ? 0 : 1;
}

/// What came of one kind of fault over many steps.
struct StepTally {
  const char* name;
  std::vector<double> seconds = {};
  int num_wrong = 0;

  void add(const Result<double>& trial) {
    if (trial.ok()) {
      seconds.push_back(*trial);
    } else {
      ++num_wrong;
      fmt::print("{}\n", trial.status().message());
    }
  }
  void print() {
    std::sort(seconds.begin(), seconds.end());
    fmt::print("  {}: {} steps, {} not as they should be", name, seconds.size() + num_wrong,
               num_wrong);
    if (!seconds.empty()) {
      fmt::print("; named by the last survivor after {} (median), {} (99 of 100), {} (at most)",
                 base::format_seconds(seconds[seconds.size() / 2]),
                 base::format_seconds(seconds[seconds.size() * 99 / 100]),
                 base::format_seconds(seconds.back()));
    }
    fmt::print("\n");
  }
};

/// Which of all jobs: those whose number is `first`, `first` + `stride`, ...
struct Share {
  size_t first = 0;
  size_t stride = 1;
};

Result<Share> parse_share(const std::string& text) {
  int part = 0, parts = 0;
  const bool two = std::sscanf(text.c_str(), "%d/%d", &part, &parts) == 2;
  if (!two || part < 1 || part > parts) {
    return base::invalid_argument("'" + text + "' is no share; 1/4 is the first of four");
  }
  return Share{static_cast<size_t>(part - 1), static_cast<size_t>(parts)};
}

std::vector<test::StepJob> step_jobs(int ranks, Share share) {
  std::vector<test::StepJob> jobs;
  for (const auto& form : test::routine_forms(ranks)) {
    jobs.push_back(test::make_step_job(form, ranks, false));
  }
  for (const auto& form : test::message_forms()) {
    jobs.push_back(test::make_step_job(form, ranks, true));
  }
  std::vector<test::StepJob> chosen;
  for (size_t i = share.first; i < jobs.size(); i += share.stride) {
    chosen.push_back(std::move(jobs[i]));
  }
  return chosen;
}

/// Every step of every rank, in groups of so many ranks.
int steps(int ranks, Share share) {
  const std::vector<test::StepJob> jobs = step_jobs(ranks, share);
  StepTally killed{"SIGKILL"}, stopped{"SIGSTOP, then SIGCONT"};
  for (const test::StepJob& job : jobs) {
    const int involved = job.channel ? 2 : ranks;
    // The root, who is beside it, and the last one: the others do what the second does.
    for (int victim = 0; victim < involved; ++victim) {
      if (victim > 1 && victim != involved - 1) continue;
      for (int point = 0; point < test::num_points(job, victim); ++point) {
        killed.add(test::run_step_fault(job, {.victim = victim, .point = point}));
        if (victim != involved - 1) continue;  // it takes its heartbeats: one rank of each
        stopped.add(
            test::run_step_fault(job, {.victim = victim, .point = point, .signal = SIGSTOP}));
      }
    }
  }
  fmt::print("{} ranks, {} ways to run a routine\n", ranks, jobs.size());
  killed.print();
  stopped.print();
  return killed.num_wrong + stopped.num_wrong == 0 ? 0 : 1;
}

constexpr const char* kUsage =
    "hanji_faults kills|stops|hosts NUMBER [SEED] [DELAY_MS] | table FILE | steps RANKS [I/N]\n"
    "             | strike FOLDER RANK PHASE SIGNAL\n";

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string verb = words.size() > 1 ? words[0] : "";
  for (const TimeBound& bound : kTimeBounds) {
    if (verb != bound.verb) continue;
    test::RandomStrike strike;
    if (words.size() > 2) strike.seed = std::stoull(words[2]);
    if (words.size() > 3) strike.watcher_delay = std::chrono::milliseconds(std::stoll(words[3]));
    return keep(bound, std::stoll(words[1]), strike);
  }
  if (verb == "table") return table(words[1]);
  if (verb == "steps") {
    const auto share = parse_share(words.size() > 2 ? words[2] : "1/1");
    if (share.ok()) return steps(std::stoi(words[1]), *share);
    fmt::print(stderr, "{}\n", share.status().message());
    return 2;
  }
  if (verb == "strike" && words.size() == 5) {
    const auto struck = test::strike_in_phase(
        {words[1], std::stoi(words[2]), words[3], words[4] == "STOP" ? SIGSTOP : SIGKILL});
    fmt::print("{}\n", struck.ok() ? *struck : struck.status().message());
    return struck.ok() ? 0 : 1;
  }
  fmt::print(stderr, "{}", kUsage);
  return 2;
}
