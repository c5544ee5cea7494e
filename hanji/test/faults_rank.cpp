// A rank without torch that trains nothing, step after step, and breaks where its arguments say:
// FAULT PHASE RANK STEP FOLDER NUM_STEPS WATCHER_DELAY_MS. For faults_test.cpp and faults_main.cpp.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/exception.h"
#include "hanji/base/file.h"
#include "hanji/base/log.h"
#include "hanji/base/stop_signals.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/inherited.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/liveness.h"
#include "hanji/test/fault_trial.h"
#include "hanji/trace/recorder.h"

using namespace hanji;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kCount = 64 << 10;
volatile sig_atomic_t stop_signal = 0;

struct Arguments {
  std::string fault, phase;
  int rank = -1;
  int64_t step = -1;
  std::string folder;
  int64_t num_steps = 0;
  std::chrono::milliseconds watcher_delay{0};
};

[[gnu::noinline]] void write_nowhere() {
  volatile uintptr_t nowhere = 0x10;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

[[gnu::noinline]] void spin_for_ever() {
  for (;;) asm volatile("");
}

/// Not inlined, nor is what waits elsewhere: stacks shall show main, not a cold part of it.
[[gnu::noinline]] void break_down(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop" || fault == "stay_stopped") ::raise(SIGSTOP);
  if (fault == "segv") write_nowhere();
  if (fault == "abort") std::abort();
  if (fault == "exception") throw std::runtime_error("page 7 is missing");
  if (fault == "hang" || fault == "stay_away") spin_for_ever();
  if (fault == "exit") std::exit(0);
}

class FaultyRank {
 public:
  FaultyRank(Arguments arguments, launch::Inherited inherited)
      : arguments_(std::move(arguments)),
        endpoints_(std::move(inherited.endpoints)),
        segment_(shm::Segment::attach(std::move(endpoints_.segment), inherited.build_id,
                                      launch::plan_hash(inherited.plan_json))
                     .or_throw()),
        identity_(launch::detect().or_throw()),
        log_(STDERR_FILENO, fmt::format("rank {}", identity_.rank)),
        recorder_(trace::Recorder::format(segment_->trace_memory(endpoints_.rank), identity_.rank,
                                          identity_.world_size)),
        watchdog_(watch()),
        heap_(segment_, endpoints_.rank),
        engine_(make_engine()) {
    data_ = heap_.allocate(kCount * sizeof(float), "gradients").or_throw().data;
  }

  /// The exit code.
  int run() {
    Status status;
    for (int64_t step = 1; step <= arguments_.num_steps && status.ok(); ++step) {
      recorder_.set_step(step);
      try {
        status = run_step(step);
      } catch (...) {
        return fail(base::status_of_program(std::current_exception()));
      }
      if (stop_signal != 0) return stop(step);
    }
    if (status.ok()) return 0;
    log_.error(status.to_string());
    launch::report_failure(endpoints_, status);
    return status.code() == Code::kTimeout ? 5 : 6;
  }

 private:
  std::unique_ptr<shm::Watchdog> watch() {
    shm::WatchdogOptions options;
    options.heartbeat = test::kFaultHeartbeat;
    options.launcher_time = 50ms;
    options.on_event = [this](const shm::LivenessEvent& event) {
      std::this_thread::sleep_for(arguments_.watcher_delay);
      log_.error(fmt::format("seen at {}: {}", base::now_ns(), event.text));
    };
    return shm::Watchdog::start(segment_, endpoints_.rank, std::move(endpoints_.pidfds), options)
        .or_throw();
  }

  std::unique_ptr<shm::Engine> make_engine() {
    std::vector<int> members(endpoints_.size);
    std::iota(members.begin(), members.end(), 0);
    shm::EngineOptions options;
    options.deadline = hangs() ? 1500ms : 60'000ms;
    options.recorder = &recorder_;
    return shm::Engine::create(segment_, 0, std::move(members), endpoints_.rank, options)
        .or_throw();
  }

  bool hangs() const { return arguments_.fault == "stop" || arguments_.fault == "hang"; }

  void maybe_break(std::string_view phase, int64_t step) {
    const bool here = arguments_.rank == endpoints_.rank && arguments_.phase == phase;
    if (!here || step != arguments_.step) return;
    log_.info(fmt::format("breaks at {}", base::now_ns()));
    if (arguments_.fault == "stray") wait_elsewhere();
    break_down(arguments_.fault);
  }

  /// In a group where nobody else comes.
  [[gnu::noinline]] void wait_elsewhere() {
    std::vector<int> members(endpoints_.size);
    std::iota(members.begin(), members.end(), 0);
    const auto engine =
        shm::Engine::create(segment_, 1, std::move(members), endpoints_.rank).or_throw();
    const auto list =
        std::make_shared<const schedule::StepList>(schedule::barrier(endpoints_.size));
    base::throw_if_error(engine->wait(engine->submit(call_of(list, "evaluation")).or_throw()));
  }

  Status run_step(int64_t step) {
    compute("forward", step);
    HANJI_RETURN_IF_ERROR(all_reduce(step));
    if (step == 1) log_.info("has begun");
    compute("optimizer", step);
    return step % 5 == 0 ? save(step) : Status();
  }

  void compute(std::string_view phase, int64_t step) {
    const trace::Span span(&recorder_, phase, trace::Category::kCompute);
    maybe_break(phase, step);
    const auto end = base::Deadline::after(200us);
    while (!end.passed()) {
    }
  }

  Status all_reduce(int64_t step) {
    const trace::Span span(&recorder_, "collective", trace::Category::kCommunication);
    static const auto list = std::make_shared<const schedule::StepList>(
        schedule::all_reduce_direct(endpoints_.size, kCount));
    shm::Call call = call_of(list, "gradients");
    call.input = call.output = data_;
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine_->submit(call));
    maybe_break("collective", step);
    return engine_->wait(ticket);
  }

  /// Rank 0 writes, all wait for it.
  Status save(int64_t step) {
    const trace::Span span(&recorder_, "save", trace::Category::kCheckpoint);
    const auto path = std::filesystem::path(arguments_.folder) / "checkpoint";
    maybe_break("save", step);
    if (endpoints_.rank == 0) {
      HANJI_RETURN_IF_ERROR(base::write_file_atomic(path, std::to_string(step)));
    }
    static const auto list =
        std::make_shared<const schedule::StepList>(schedule::barrier(endpoints_.size));
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine_->submit(call_of(list, "saved")));
    return engine_->wait(ticket);
  }

  shm::Call call_of(const std::shared_ptr<const schedule::StepList>& list, std::string_view label) {
    shm::Call call;
    call.routine = list->routine;
    call.count = list->count;
    call.root = list->root;
    call.steps = list;
    call.call_site =
        segment_->call_sites().intern(endpoints_.rank, std::source_location::current(), label);
    return call;
  }

  int fail(const Status& status) {
    segment_->abort(endpoints_.rank, Code::kPeerLost,
                    fmt::format("{} failed: {}; {}", shm::describe_rank(*segment_, endpoints_.rank),
                                launch::describe_status(status),
                                shm::describe_last_call(segment_, endpoints_.rank)));
    log_.error(launch::describe_status(status));
    launch::report_failure(endpoints_, status);
    return 1;
  }

  int stop(int64_t step) {
    const auto path = std::filesystem::path(arguments_.folder) / "checkpoint";
    const bool saved =
        endpoints_.rank != 0 || base::write_file_atomic(path, std::to_string(step)).ok();
    log_.info(fmt::format("stopped after step {}", step));
    return !saved ? 70 : stop_signal == SIGINT ? 130 : 75;
  }

  Arguments arguments_;
  shm::Endpoints endpoints_;
  std::shared_ptr<shm::Segment> segment_;
  launch::Identity identity_;
  base::Log log_;
  trace::Recorder recorder_;
  std::unique_ptr<shm::Watchdog> watchdog_;
  shm::Heap heap_;
  std::unique_ptr<shm::Engine> engine_;
  std::byte* data_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  try {
    auto inherited = launch::inherited_endpoints().or_throw();
    launch::report_crashes(inherited.endpoints, inherited.endpoints.rank);
    for (const int signal : base::kStopSignals) {
      if (argv[1] != std::string("deaf"))
        ::signal(signal, [](int got) { stop_signal = got; });
      else
        ::signal(signal, SIG_IGN);
    }
    return FaultyRank({argv[1], argv[2], std::stoi(argv[3]), std::stoll(argv[4]), argv[5],
                       std::stoll(argv[6]), std::chrono::milliseconds(std::stoll(argv[7]))},
                      std::move(inherited))
        .run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 70;
  }
}
