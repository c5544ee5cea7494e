#include "hanji/test/step_fault.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <numeric>
#include <span>

#include "hanji/base/clock.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/internal/preparation.h"
#include "hanji/shm/internal/runner.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/survivors.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_processes.h"

namespace hanji::test {
namespace {

using namespace std::chrono_literals;
using schedule::Place;
using schedule::StepKind;
using schedule::StepList;

constexpr int kCalls = 3;  // the second one breaks
constexpr auto kHeartbeat = 30ms;
constexpr auto kPatience = 60s;      // for what must come
constexpr auto kShortDeadline = 1s;  // for who never comes
constexpr float kUntouched = -1;

/// What the processes tell each other beside the segment.
struct Board {
  std::atomic<int64_t> broken_at_ns{0};
  std::atomic<int64_t> last_named_at_ns{0};
  std::atomic<int> num_named{0};
  std::atomic<int> num_given_up{0};
};

/// Memory that all processes forked from here share.
class SharedBoard {
 public:
  SharedBoard()
      : memory_(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    new (memory_) Board;
  }
  ~SharedBoard() { ::munmap(memory_, sizeof(Board)); }
  Board& operator*() { return *static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

/// One rank's end of a job: its buffers and its calls.
class Rank {
 public:
  Rank(const StepJob& job, std::shared_ptr<shm::Segment> segment, int rank)
      : job_(job), segment_(std::move(segment)), heap_(segment_, rank), rank_(rank) {
    const auto room = [&](Place place) {
      return static_cast<size_t>(takes_part() ? elements_of(*job.list, rank, place) : 0);
    };
    input_elements_ = room(Place::kInput) * kParts;
    output_elements_ = room(Place::kOutput);
    input_ = allocate(input_elements_);
    output_ = allocate(output_elements_);
    site_ = segment_->call_sites().intern(rank, fmt::format("step.cpp:{}", rank));
  }

  bool takes_part() const { return !job_.channel || rank_ < 2; }
  std::vector<int> members() const { return first_ranks(job_.channel ? 2 : job_.ranks); }
  int group() const { return job_.channel ? segment_->channel_id(0, 1) : 0; }

  std::unique_ptr<shm::Engine> make_engine(const shm::EngineOptions& options) const {
    if (job_.channel) return shm::Engine::create_channel(segment_, 0, 1, rank_, options).or_throw();
    return shm::Engine::create(segment_, 0, members(), rank_, options).or_throw();
  }

  /// The call, its buffers filled anew.
  shm::Call call(int index) {
    for (size_t i = 0; i < input_elements_; ++i) {
      input_[i] = static_cast<float>((rank_ + 1) * 100 + index * 7 + static_cast<int>(i % 13));
    }
    std::fill_n(output_, output_elements_, kUntouched);
    shm::Call call = call_of(job_.list);
    call.input = input_elements_ == 0 ? nullptr : input_;
    call.output = output_elements_ == 0 ? nullptr : output_;
    call.num_parts = kParts;
    call.input_stride = static_cast<int64_t>(input_elements_) / kParts;
    call.tag = static_cast<uint64_t>(index);
    call.call_site = site_;
    return call;
  }

  std::span<const float> output() const { return {output_, output_elements_}; }

  Status run(shm::Engine& engine, int index) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine.submit(call(index)));
    return engine.wait(ticket);
  }

 private:
  static constexpr int kParts = 3;  // as many as a rank's part of a tree has at most

  float* allocate(size_t elements) {
    const size_t bytes = std::max<size_t>(elements, 1) * sizeof(float);
    return reinterpret_cast<float*>(heap_.allocate(bytes, "test").or_throw().data);
  }

  const StepJob& job_;
  std::shared_ptr<shm::Segment> segment_;
  shm::Heap heap_;
  int rank_;
  size_t input_elements_ = 0, output_elements_ = 0;
  float* input_ = nullptr;
  float* output_ = nullptr;
  uint32_t site_ = 0;
};

/// The second call of the rank that breaks: a runner of its own whose list ends early.
class Victim {
 public:
  Victim(Rank& rank, const std::shared_ptr<shm::Segment>& segment, int me)
      : lines_(segment, rank.group(), rank.members(), me),
        preparation_(lines_),
        runner_(lines_, stats_) {}

  Status begin(const shm::Call& call) {
    return preparation_.prepare(call, runner_.first_operation() + 1, operation_);
  }

  /// Only the first `point` steps. The peers cannot tell: they know the whole list's fingerprint.
  Status run_to(int point) {
    if (point == 0) return {};
    whole_ = operation_.program;
    auto cut = std::make_shared<StepList>(*whole_->list);
    auto& steps = cut->per_rank[lines_.me()];
    steps.resize(static_cast<size_t>(point));
    const auto num_syncs = std::count_if(
        steps.begin(), steps.end(), [](const auto& step) { return step.kind == StepKind::kSync; });
    const uint64_t posted = runner_.sequence() + static_cast<uint64_t>(num_syncs);
    const bool ends_with_sync = steps.back().kind == StepKind::kSync;
    cut_ = std::make_shared<shm::internal::Program>(*whole_);
    cut_->list = std::move(cut);
    operation_.program = cut_;
    while (true) {
      int64_t budget = 1;
      HANJI_ASSIGN_OR_RETURN(const bool complete, runner_.run(operation_, budget));
      if (complete || (ends_with_sync && runner_.sequence() == posted)) return {};
      ::sched_yield();
    }
  }

  Status run_the_rest() {
    if (whole_ != nullptr) operation_.running = whole_.get();
    while (true) {
      int64_t budget = INT64_MAX;
      HANJI_ASSIGN_OR_RETURN(const bool complete, runner_.run(operation_, budget));
      if (complete) break;
      ::sched_yield();
    }
    lines_.set_completed(operation_.descriptor.operation);
    return {};
  }

 private:
  shm::internal::GroupLines lines_;
  shm::internal::Preparation preparation_;
  shm::Stats stats_;
  shm::internal::Runner runner_;
  shm::internal::Operation operation_;
  std::shared_ptr<const shm::internal::Program> whole_;
  std::shared_ptr<shm::internal::Program> cut_;
};

/// A process of the trial. What it returns is empty if all went as it should.
class Process {
 public:
  Process(const StepJob& job, const StepFault& fault, std::shared_ptr<shm::Segment> segment,
          Board& board, int rank)
      : job_(job),
        fault_(fault),
        segment_(std::move(segment)),
        board_(board),
        rank_(rank),
        watchdog_(watch()),
        buffers_(job, segment_, rank) {}

  std::string run() {
    if (!buffers_.takes_part()) return look_on();
    options_.deadline = fault_.signal == SIGSTOP && !fault_.resumes ? kShortDeadline : kPatience;
    return rank_ == fault_.victim ? break_down() : survive();
  }

 private:
  bool stops() const { return fault_.signal == SIGSTOP; }
  int num_survivors() const { return (job_.channel ? 2 : job_.ranks) - 1; }

  std::unique_ptr<shm::Watchdog> watch() {
    segment_->join(rank_);
    std::vector<base::Fd> pidfds;
    for (int peer = 0; peer < job_.ranks; ++peer) {
      while (segment_->pid(peer) == 0) ::usleep(100);
      pidfds.push_back(peer == rank_ ? base::Fd()
                                     : shm::open_pidfd(segment_->pid(peer)).or_throw());
    }
    shm::WatchdogOptions options;
    options.heartbeat = kHeartbeat;
    options.on_event = [this](const shm::LivenessEvent& event) { see(event); };
    return shm::Watchdog::start(segment_, rank_, std::move(pidfds), options).or_throw();
  }

  /// On the watchdog's thread.
  void see(const shm::LivenessEvent& event) {
    const bool stopped = event.kind == shm::LivenessEvent::Kind::kStopped;
    const bool counts = !job_.channel || rank_ < 2;
    if (!stopped || !counts || event.rank != fault_.victim || board_.broken_at_ns == 0) return;
    if (event.text.find(fmt::format("rank {} (host ", fault_.victim)) == std::string::npos) return;
    name_victim();
    if (board_.num_named == num_survivors() && fault_.resumes) {
      ::kill(segment_->pid(fault_.victim), SIGCONT);
    }
  }

  void name_victim() {
    board_.last_named_at_ns = base::now_ns();
    ++board_.num_named;
  }

  std::string call_and_compare(shm::Engine& engine, int index) {
    const Status status = buffers_.run(engine, index);
    return status.ok() ? compare(index) : fmt::format("call {}: {}", index, status.to_string());
  }

  std::string compare(int index) const {
    if (std::ranges::equal(buffers_.output(), job_.outputs[index][rank_])) return "";
    return fmt::format("call {}: wrong bytes on rank {}", index, rank_);
  }

  std::string break_down() {
    const std::string early = call_and_compare(*buffers_.make_engine(options_), 0);
    if (!early.empty()) return early;
    Victim victim(buffers_, segment_, rank_);
    Status status = victim.begin(buffers_.call(1));
    if (status.ok()) status = victim.run_to(fault_.point);
    if (!status.ok()) return "before it broke: " + status.to_string();
    board_.broken_at_ns = base::now_ns();
    ::raise(fault_.signal);
    if (!fault_.resumes) return "";
    status = victim.run_the_rest();
    if (!status.ok()) return "after it went on: " + status.to_string();
    const std::string wrong = compare(1);
    return wrong.empty() ? call_and_compare(*buffers_.make_engine(options_), 2) : wrong;
  }

  /// The victim may be dead before this rank sees that all have come to the first call.
  std::string survive() {
    const auto engine = buffers_.make_engine(options_);
    for (int index = 0; index < kCalls; ++index) {
      const Status status = buffers_.run(*engine, index);
      if (!status.ok()) return judge(status);
      const std::string wrong = compare(index);
      if (!wrong.empty()) return wrong;
    }
    return stops() && fault_.resumes ? "" : "nobody missed the victim";
  }

  std::string judge(const Status& status) {
    const std::string name = fmt::format("rank {}", fault_.victim);
    if (!stops()) {
      name_victim();
      const bool right = status.code() == Code::kPeerLost &&
                         status.message().find(name + " (host ") != std::string::npos;
      return right ? go_on() : "not named: " + status.to_string();
    }
    // No other rank ends the one that never continues: the rank that gives up last does.
    if (++board_.num_given_up == num_survivors()) ::kill(segment_->pid(fault_.victim), SIGKILL);
    const bool right = !fault_.resumes && status.code() == Code::kTimeout &&
                       (status.message().find("absent " + name) != std::string::npos ||
                        status.message().find("gave up (timeout)") != std::string::npos);
    return right ? "" : "not named: " + status.to_string();
  }

  /// All who outlive it, in a smaller group: the sum of their ranks.
  std::string go_on() {
    const auto all = first_ranks(job_.ranks);
    const auto survivors = shm::agree_on_survivors(
        *segment_, {.members = all, .my_rank = rank_, .first_free_id = 1, .deadline = kPatience});
    if (!survivors.ok()) return "survivors: " + survivors.status().to_string();
    options_.epoch = survivors->epoch;
    const auto engine =
        shm::Engine::create(segment_, survivors->group_id, survivors->members, rank_, options_)
            .or_throw();
    float sum = static_cast<float>(rank_);
    shm::Call call = call_of(share(schedule::all_reduce_flat(engine->size(), 1)));
    call.input = call.output = &sum;
    const auto ticket = engine->submit(call);
    const Status status = ticket.ok() ? engine->wait(*ticket) : ticket.status();
    if (!status.ok()) return "in the smaller group: " + status.to_string();
    const int expected = std::accumulate(all.begin(), all.end(), 0) - fault_.victim;
    return sum == static_cast<float>(expected) ? "" : "in the smaller group: a wrong sum";
  }

  /// A rank beside the channel: it stays until the others are through, or goes on with those that
  /// outlive a death. A peer is marked as dead before the epoch ends, so it waits for that end.
  std::string look_on() {
    const auto deadline = base::Deadline::after(kPatience);
    while (!deadline.passed()) {
      if (!stops() && segment_->aborted()) return go_on();
      if (stops() && !(segment_->is_expected(0) && segment_->is_expected(1))) return "";
      ::usleep(500);
    }
    return "neither the end of the epoch nor that of the others came";
  }

  const StepJob& job_;
  const StepFault& fault_;
  std::shared_ptr<shm::Segment> segment_;
  Board& board_;
  int rank_;
  shm::EngineOptions options_;
  std::unique_ptr<shm::Watchdog> watchdog_;
  Rank buffers_;
};

}  // namespace

StepJob make_step_job(const RoutineForm& form, int ranks, bool channel) {
  StepJob job;
  job.name = fmt::format("{} of {} ranks", form.name, ranks);
  job.ranks = ranks;
  job.channel = channel;
  job.list = share(form.list(form.count, 0));
  job.outputs.assign(kCalls, std::vector<std::vector<float>>(static_cast<size_t>(ranks)));
  const auto segment = make_segment(ranks);
  run_threads(channel ? 2 : ranks, [&](int rank) {
    Rank buffers(job, segment, rank);
    const auto engine = buffers.make_engine({});
    for (int index = 0; index < kCalls; ++index) {
      base::throw_if_error(buffers.run(*engine, index));
      const auto output = buffers.output();
      job.outputs[index][rank].assign(output.begin(), output.end());
    }
  });
  return job;
}

int num_points(const StepJob& job, int rank) {
  return static_cast<int>(job.list->per_rank[rank].size()) + 1;
}

Result<double> run_step_fault(const StepJob& job, const StepFault& fault) {
  const auto segment = make_segment(job.ranks);
  SharedBoard board;
  const auto answers = run_processes(
      job.ranks, [&](int rank) { return Process(job, fault, segment, *board, rank).run(); });
  const bool dies = fault.signal == SIGKILL || !fault.resumes;
  const int involved = job.channel ? 2 : job.ranks;
  for (int rank = 0; rank < job.ranks; ++rank) {
    const bool killed = answers[rank] == "(killed by signal 9)";
    if (rank == fault.victim ? killed == dies && (dies || answers[rank].empty())
                             : answers[rank].empty()) {
      continue;
    }
    return base::internal(fmt::format("{}, signal {} to rank {} at point {}: rank {} says '{}'",
                                      job.name, fault.signal, fault.victim, fault.point, rank,
                                      answers[rank]));
  }
  if ((*board).num_named < involved - 1) {
    return base::internal(fmt::format("{}, signal {} to rank {} at point {}: named by {} of {}",
                                      job.name, fault.signal, fault.victim, fault.point,
                                      (*board).num_named.load(), involved - 1));
  }
  return static_cast<double>((*board).last_named_at_ns - (*board).broken_at_ns) * 1e-9;
}

}  // namespace hanji::test
