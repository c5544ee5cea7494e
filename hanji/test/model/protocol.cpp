#include "hanji/test/model/protocol.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <numeric>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/send.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/segment.h"
#include "hanji/test/model/memory.h"
#include "hanji/test/model/model_time.h"

namespace hanji::test::model {
namespace {

using schedule::StepList;
using shm::internal::GroupRank;
using shm::internal::Line;

constexpr int kMaxRanks = 3;
constexpr int kMaxElements = 16;
constexpr int kMaxCalls = 4;
constexpr int64_t kTick = 10'000'000;  // more than any time of polling before a sleep

/// What ranks own beside the segment: at fixed addresses, so that it is saved and restored.
struct Own {
  std::array<int64_t, kMaxThreads> time{};
  std::array<std::array<std::array<float, kMaxElements>, kMaxCalls>, kMaxRanks> input{}, output{};
};

/// Of the exploration that runs. The seams ask for it, and they have no argument that could tell.
struct Running {
  Own own;
  Waits waits = Waits::kPoll;
} running;

/// No reference count: a thread that is run again would count twice.
template <class T>
std::shared_ptr<T> unowned(T& value) {
  return {std::shared_ptr<void>(), &value};
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

int64_t count_of(Routine routine) {
  switch (routine) {
    case Routine::kBarrier: return 0;
    case Routine::kAllReduceInLine: return 2;
    case Routine::kAllReduceStaged:
    case Routine::kSendStaged: return 2;
    case Routine::kAllReduceDirect: return 2;
    default: return 16;  // 64 bytes: more than a line holds
  }
}

StepList list_for(Routine routine, int ranks) {
  const int64_t count = count_of(routine);
  switch (routine) {
    case Routine::kBarrier: return schedule::barrier(ranks);
    case Routine::kAllReduceInLine:
    case Routine::kAllReduceFlat: return schedule::all_reduce_flat(ranks, count);
    case Routine::kAllReduceDirect: return schedule::all_reduce_direct(ranks, count);
    case Routine::kAllReduceStaged: return schedule::all_reduce_staged(ranks, count, 1);
    case Routine::kBroadcastFlat: return schedule::broadcast_flat(ranks, count, 0);
    case Routine::kAllGatherDirect: return schedule::all_gather_direct(ranks, count / 4);
    case Routine::kSendFlat: return schedule::send_flat(count);
    case Routine::kSendDirect: return schedule::send_direct(count);
    case Routine::kSendStaged: return schedule::send_staged(count, 1);
  }
  return {};
}

bool in_heap(Routine routine) {
  return routine == Routine::kAllReduceDirect || routine == Routine::kAllGatherDirect ||
         routine == Routine::kSendDirect;
}
bool over_channel(Routine routine) {
  return routine == Routine::kSendFlat || routine == Routine::kSendDirect ||
         routine == Routine::kSendStaged;
}

float value_of(int rank, int call) { return static_cast<float>(10 * call + rank + 1); }

/// What element `index` of a rank's output is after a call.
float expected(const Scenario& scenario, int64_t index, int call) {
  float sum = 0;
  switch (scenario.routine) {
    case Routine::kBroadcastFlat:
    case Routine::kSendFlat:
    case Routine::kSendDirect:
    case Routine::kSendStaged: return value_of(0, call);
    case Routine::kAllGatherDirect:
      return value_of(static_cast<int>(index / (count_of(scenario.routine) / 4)), call);
    default: break;
  }
  for (int rank = 0; rank < scenario.ranks; ++rank) sum += value_of(rank, call);
  return sum;
}

/// The segment, the lists and the ranks of one exploration.
class Job {
 public:
  explicit Job(const Scenario& scenario) : scenario_(scenario) {
    shm::SegmentOptions options;
    options.ranks = scenario.ranks;
    options.heap_bytes_per_rank = size_t{2} << 20;
    options.trace_events = 1;
    segment_ = shm::Segment::create(options).or_throw();
    list_ = list_for(scenario.routine, scenario.ranks);
    running.own = {};
    running.waits = scenario.waits;
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      segment_->join(rank);
      site_ = segment_->call_sites().intern(rank, fmt::format("model.cpp:{}", rank + 1));
      base::throw_if_error(segment_->grow(segment_->heap_offset(rank), 4096));
    }
  }

  Program program() {
    Program program;
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      program.threads.push_back([this, rank] { run(rank); });
    }
    if (scenario_.death) {
      program.mortal = scenario_.ranks - 1;
      program.threads.push_back([this] { watch(); });
    }
    share(program);
    return program;
  }

  Weakening weakening() const {
    Weakening weak;
    switch (scenario_.seed) {
      case Seed::kNone: break;
      case Seed::kOneLine:
        for (int rank = 0; rank < scenario_.ranks; ++rank) {
          const std::span<Line> lines = segment_->lines(group(), rank);
          weak.aliases.push_back({&lines[1], sizeof(Line), &lines[0]});
        }
        break;
      case Seed::kFewLines:
        for (int rank = 0; rank < scenario_.ranks; ++rank) {
          const std::span<Line> lines = segment_->lines(group(), rank);
          weak.aliases.push_back({&lines[lines.size() / 2], lines.size_bytes() / 2, &lines[0]});
        }
        break;
      case Seed::kOneStagingSet:
        for (int rank = 0; rank < scenario_.ranks; ++rank) {
          const std::byte* first = staging(rank);
          const size_t set = shm::internal::kStagingPlaces * shm::internal::kStagingBytes;
          weak.aliases.push_back({first + set, set, first});
        }
        break;
      case Seed::kNoFence: weak.fences_do_nothing = true; break;
      case Seed::kPostNotReleased: weak.releases_are_relaxed = true; break;
      case Seed::kReadNotAcquired: weak.acquires_are_relaxed = true; break;
      case Seed::kSleepUnchecked: weak.sleeps_unchecked = true; break;
      case Seed::kCountedLate: weak.updates_are_late = true; break;
    }
    return weak;
  }

 private:
  int group() const { return over_channel(scenario_.routine) ? segment_->channel_id(0, 1) : 0; }
  std::byte* staging(int rank) const {
    return segment_->data() + segment_->staging_offset(group(), rank);
  }
  float* input(int rank, int call) const {
    if (!in_heap(scenario_.routine)) return running.own.input[rank][call].data();
    return reinterpret_cast<float*>(segment_->data() + segment_->heap_offset(rank)) +
           2 * call * kMaxElements;
  }
  float* output(int rank, int call) const {
    if (!in_heap(scenario_.routine)) return running.own.output[rank][call].data();
    return input(rank, call) + kMaxElements;
  }

  /// All memory that threads change, and what of it must be ordered by the flags.
  void share(Program& program) const {
    const std::byte* start = segment_->data();
    const auto region = [&](size_t offset, size_t bytes) {
      program.shared.emplace_back(segment_->data() + offset, bytes);
    };
    program.shared.push_back(bytes_of(running.own));
    region(shm::internal::kAbortOffset, sizeof(shm::internal::AbortWord));
    region(shm::internal::kEpochOffset, sizeof(shm::internal::EpochWord));
    auto& waiters = segment_->waiters(group());
    program.shared.push_back(bytes_of(waiters));
    program.names.push_back({&waiters.rings, 4, "rings"});
    program.names.push_back({&waiters.sleepers, 4, "sleepers"});
    program.names.push_back({start + shm::internal::kAbortOffset, 1024, "the abort word"});
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      GroupRank& own = segment_->group_rank(group(), rank);
      share_state(program, segment_->rank_state(rank));
      program.shared.push_back(bytes_of(own));
      const std::span<Line> lines = segment_->lines(group(), rank);
      if (over_channel(scenario_.routine)) program.shared.push_back(std::as_writable_bytes(lines));
      for (size_t line = 0; line < lines.size(); ++line) {
        Line& each = lines[line];
        const std::string name = fmt::format("line {}.{}", rank, line);
        program.names.push_back({&each.sequence, 8, name});
        program.names.push_back({&each.words, sizeof each.words, "the words of " + name});
        program.data.push_back(bytes_of(each.words));
      }
      program.names.push_back({&own.failed, 4, fmt::format("the failure of rank {}", rank)});
      share_buffers(program, rank);
    }
  }

  /// What a rank waits for is for people; the rest is read.
  static void share_state(Program& program, shm::internal::RankState& state) {
    const std::span<std::byte> all = bytes_of(state);
    const size_t begin = offsetof(shm::internal::RankState, waiting);
    const size_t end = offsetof(shm::internal::RankState, heartbeat_ns);
    program.shared.push_back(all.first(begin));
    program.unread.push_back(all.subspan(begin, end - begin));
    program.shared.push_back(all.subspan(end));
  }

  void share_buffers(Program& program, int rank) const {
    const size_t bytes = static_cast<size_t>(list_.slot_elements) * sizeof(float);
    for (size_t i = 0; i < shm::internal::kStagingSets * shm::internal::kStagingPlaces; ++i) {
      std::byte* place = staging(rank) + i * shm::internal::kStagingBytes;
      if (bytes != 0) program.shared.emplace_back(place, bytes);
      program.names.push_back({place, bytes, fmt::format("staging {} of rank {}", i, rank)});
    }
    for (int call = 0; call < scenario_.calls && in_heap(scenario_.routine); ++call) {
      for (float* buffer : {input(rank, call), output(rank, call)}) {
        program.shared.push_back(
            std::as_writable_bytes(std::span(buffer, static_cast<size_t>(kMaxElements))));
      }
    }
    program.names.push_back({input(rank, 0), kMaxCalls * 2 * kMaxElements * sizeof(float),
                             fmt::format("buffers of rank {}", rank)});
  }

  shm::Call call(int rank, int index) const {
    shm::Call call;
    call.routine = list_.routine;
    call.count = list_.count;
    call.root = list_.root;
    call.steps = unowned<const StepList>(list_);
    call.call_site = site_;
    call.tag = static_cast<uint64_t>(index);
    if (scenario_.mismatch && rank == scenario_.ranks - 1 && index == scenario_.calls - 1) {
      call.tag = 77;
    }
    const bool gives = !over_channel(scenario_.routine) || rank == 0;
    const bool takes = !over_channel(scenario_.routine) || rank == 1;
    if (gives) call.input = input(rank, index);
    if (takes) call.output = output(rank, index);
    return call;
  }

  std::unique_ptr<shm::Engine> make_engine(int rank) {
    shm::EngineOptions options;
    options.spin = 0;
    auto segment = unowned(*segment_);
    if (over_channel(scenario_.routine)) {
      return shm::Engine::create_channel(segment, 0, 1, rank, options).or_throw();
    }
    std::vector<int> members(static_cast<size_t>(scenario_.ranks));
    std::iota(members.begin(), members.end(), 0);
    return shm::Engine::create(segment, 0, std::move(members), rank, options).or_throw();
  }

  void run(int rank) {
    const auto engine = make_engine(rank);
    std::array<uint64_t, kMaxCalls> tickets{};
    for (int call = 0; call < scenario_.calls; ++call) {
      if (!submit(*engine, rank, call, tickets[call])) return;
      if (!scenario_.ahead && !wait(*engine, rank, call, tickets[call])) return;
    }
    for (int call = 0; call < scenario_.calls && scenario_.ahead; ++call) {
      if (!wait(*engine, rank, call, tickets[call])) return;
    }
  }

  /// False: the job has ended, as it may.
  bool submit(shm::Engine& engine, int rank, int index, uint64_t& ticket) {
    const shm::Call made = call(rank, index);
    if (made.input != nullptr) {
      float* data = input(rank, index);
      note_write(data, static_cast<size_t>(list_.count) * sizeof(float));
      std::fill_n(data, list_.count, value_of(rank, index));
    }
    const auto result = engine.submit(made);
    if (result.ok()) ticket = *result;
    return result.ok() || ended_rightly(result.status(), index);
  }

  bool wait(shm::Engine& engine, int rank, int index, uint64_t ticket) {
    running.own.time[rank] = 0;
    const Status status = engine.wait(ticket);
    running.own.time[rank] = 0;
    // How long it waited would tell equal states apart.
    const_cast<shm::Stats&>(engine.stats()).wait_ns = 0;
    if (!status.ok()) return ended_rightly(status, index);
    const bool wrong = scenario_.mismatch && index == scenario_.calls - 1;
    check(!wrong, "a call went through although the ranks disagree");
    if (call(rank, index).output == nullptr) return true;
    const float* data = output(rank, index);
    const int64_t count = scenario_.routine == Routine::kAllGatherDirect
                              ? list_.count * scenario_.ranks
                              : list_.count;
    note_read(data, static_cast<size_t>(count) * sizeof(float));
    for (int64_t i = 0; i < count; ++i) {
      check(data[i] == expected(scenario_, i, index), "a wrong value came out");
    }
    return true;
  }

  /// Always false, if it does not end the exploration.
  bool ended_rightly(const Status& status, int index) const {
    const bool differs = scenario_.mismatch && index == scenario_.calls - 1 &&
                         status.code() == Code::kMismatch &&
                         status.message().find("the tag is 77 there") != std::string::npos;
    const bool died = scenario_.death && status.code() == Code::kPeerLost;
    check(differs || died, "a call failed: " + status.to_string());
    return false;
  }

  /// What a watchdog does when a rank dies.
  void watch() {
    if (!await_end(scenario_.ranks - 1)) return;
    segment_->abort(scenario_.ranks - 1, Code::kPeerLost, "died");
  }

  Scenario scenario_;
  std::shared_ptr<shm::Segment> segment_;
  StepList list_;
  uint32_t site_ = 0;
};

}  // namespace

bool sleeps_at_once() {
  const int thread = current_machine()->running();
  return running.waits == Waits::kSleep || (running.waits == Waits::kMixed && thread % 2 == 0);
}

int64_t next_time() {
  int64_t& passed = running.own.time[static_cast<size_t>(current_machine()->running())];
  const int64_t now = kTick + passed;
  if (sleeps_at_once()) passed = kTick;
  return now;
}

Outcome explore(const Scenario& scenario, int64_t max_states) {
  Job job(scenario);
  return explore(job.program(), max_states, job.weakening());
}

}  // namespace hanji::test::model
