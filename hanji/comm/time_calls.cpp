#include "hanji/comm/time_calls.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/schedule/barrier.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {
namespace {

using schedule::Place;
using schedule::Routine;

constexpr size_t kSkew = 11 * 4096;
constexpr double kRowSeconds = 600e-6;  // of equal calls: long against the meetings around it
constexpr int kMaxInRow = 256;
constexpr int kLeastRounds = 2;
constexpr int kMaxRounds = 30;
constexpr int kStagingSets = 2;
constexpr int kFullRounds = 3;  // in which every call takes part: one may be disturbed
constexpr int kShorter = 4;     // than a full round is one in which long calls rest, about
constexpr int kMaxRests = 8;    // of a long call, between two rounds

// The largest input and output of any rank, in bytes.
size_t largest_bytes(const std::vector<cost::TimedCall>& calls, Place place) {
  int64_t most = 64;
  for (const cost::TimedCall& call : calls) {
    for (int rank = 0; rank < call.list->ranks; ++rank) {
      const int64_t elements = schedule::elements_of(*call.list, rank, place);
      most = std::max(most, elements * static_cast<int64_t>(base::size_of(call.dtype)));
    }
  }
  return static_cast<size_t>(most);
}

bool is_in_place(Routine routine) {
  return routine == Routine::kAllReduce || routine == Routine::kBroadcast ||
         routine == Routine::kReduce || routine == Routine::kTreeReduce;
}

// What all ranks share while they measure.
struct Course {
  Course(const std::vector<cost::TimedCall>& all, const TimeCallsOptions& how)
      : calls(all), options(how), in_row(all.size()), rests(all.size(), 1), samples(all.size()) {}

  const std::vector<cost::TimedCall>& calls;
  const TimeCallsOptions& options;
  std::shared_ptr<shm::Segment> segment;
  std::vector<int> in_row;                   // equal calls in a row; rank 0 writes between meetings
  std::vector<int> rests;                    // every how many rounds it takes part; rank 0 too
  std::vector<std::vector<double>> samples;  // of each call; rank 0
  std::atomic<int> gate{0};                  // 1: go, -1: go home
  std::atomic<bool> over{false};
  std::mutex mutex;
  Status status;  // the first failure
};

class Timer {
 public:
  Timer(Course& course, int rank) : course_(course), rank_(rank), heap_(course.segment, rank) {}

  Status run() {
    HANJI_RETURN_IF_ERROR(prepare());
    const int64_t start = base::now_ns();
    const auto budget = static_cast<int64_t>(course_.options.budget_seconds * 1e9);
    int64_t round_start = start;
    for (int round = 0; !course_.over; ++round) {
      for (size_t i = 0; i < course_.calls.size(); ++i) {
        if (round == 0) HANJI_RETURN_IF_ERROR(settle(i));
        if (round < kFullRounds || round % course_.rests[i] == 0) HANJI_RETURN_IF_ERROR(time(i));
      }
      HANJI_RETURN_IF_ERROR(meet());  // nobody decides before all have looked
      if (rank_ == 0) {
        const int64_t now = base::now_ns();
        const bool shortens = round + 1 == kFullRounds;
        const int64_t next = (now - round_start) / (shortens ? kShorter : 1);
        const bool no_time_left = now - start + next > budget;
        course_.over = round + 1 >= kMaxRounds || (round + 1 >= kLeastRounds && no_time_left);
        if (shortens) let_long_ones_rest();
        round_start = now;
      }
      HANJI_RETURN_IF_ERROR(meet());
    }
    return {};
  }

 private:
  Status prepare() {
    std::vector<int> members(static_cast<size_t>(course_.options.ranks));
    std::iota(members.begin(), members.end(), 0);
    shm::EngineOptions options;
    options.usable_processors = course_.options.usable_cores;
    HANJI_ASSIGN_OR_RETURN(engine_,
                           shm::Engine::create(course_.segment, 0, members, rank_, options));
    barrier_ = std::make_shared<const schedule::StepList>(schedule::barrier(course_.options.ranks));
    HANJI_RETURN_IF_ERROR(allocate(true, buffers_[1]));
    return allocate(false, buffers_[0]);
  }

  struct Buffers {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };

  Status allocate(bool in_heap, Buffers& buffers) {
    std::vector<cost::TimedCall> calls;
    std::ranges::copy_if(course_.calls, std::back_inserter(calls),
                         [&](const cost::TimedCall& one) { return one.in_heap == in_heap; });
    if (calls.empty()) return {};
    // Not a power of two apart: processors take such addresses for one, and copies crawl.
    HANJI_RETURN_IF_ERROR(
        allocate(in_heap, largest_bytes(calls, Place::kInput) + kSkew, buffers.input));
    return allocate(in_heap, largest_bytes(calls, Place::kOutput), buffers.output);
  }

  Status allocate(bool in_heap, size_t bytes, std::byte*& data) {
    if (!in_heap) {
      private_.emplace_back(new (std::nothrow) std::byte[bytes]());
      data = private_.back().get();
      if (data != nullptr) return {};
      return base::out_of_memory(
          fmt::format("timing calls needs {} per rank; free some memory, or time fewer ranks",
                      base::format_bytes(static_cast<int64_t>(bytes))));
    }
    HANJI_ASSIGN_OR_RETURN(const auto block, heap_.allocate(bytes, "fit"));
    std::memset(block.data, 0, bytes);  // zeros of any type stay zeros, whatever is done to them
    data = block.data;
    return {};
  }

  // A call that takes long takes part so seldom that all spend about as much time.
  void let_long_ones_rest() {
    for (size_t i = 0; i < course_.calls.size(); ++i) {
      const double row = course_.samples[i].back() * (1 + course_.in_row[i]);
      const double rests = row / (2 * kRowSeconds);
      course_.rests[i] = static_cast<int>(std::clamp(rests, 1.0, double{kMaxRests}));
    }
  }

  Status submit(const shm::Call& call) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine_->submit(call));
    return engine_->wait(ticket);
  }

  Status meet() {
    shm::Call call;
    call.steps = barrier_;
    return submit(call);
  }

  shm::Call call_of(size_t index) const {
    const cost::TimedCall& timed = course_.calls[index];
    const bool one_buffer = is_in_place(timed.list->routine) || timed.list->algorithm == "swap";
    shm::Call call;
    call.routine = timed.list->routine;
    call.dtype = timed.dtype;
    call.count = timed.list->count;
    call.root = timed.list->root;
    const Buffers& buffers = buffers_[timed.in_heap ? 1 : 0];
    call.input = buffers.input;
    call.output = one_buffer ? buffers.input : buffers.output;
    call.steps = timed.list;
    return call;
  }

  // Touches the pages of both sets of staging, and finds out how many calls fill a row.
  Status settle(size_t index) {
    const shm::Call call = call_of(index);
    for (int i = 0; i < kStagingSets; ++i) HANJI_RETURN_IF_ERROR(submit(call));
    HANJI_RETURN_IF_ERROR(meet());
    const int64_t start = base::now_ns();
    HANJI_RETURN_IF_ERROR(submit(call));
    HANJI_RETURN_IF_ERROR(meet());
    if (rank_ == 0) {
      const double rows = kRowSeconds / (static_cast<double>(base::now_ns() - start) * 1e-9);
      course_.in_row[index] = static_cast<int>(std::clamp(rows, 1.0, double{kMaxInRow}));
    }
    return meet();
  }

  // One row of a call, after one to warm up.
  Status time(size_t index) {
    const shm::Call call = call_of(index);
    HANJI_RETURN_IF_ERROR(submit(call));
    HANJI_RETURN_IF_ERROR(meet());
    const int row = course_.in_row[index];
    const int64_t start = base::now_ns();
    for (int i = 0; i < row; ++i) HANJI_RETURN_IF_ERROR(submit(call));
    HANJI_RETURN_IF_ERROR(meet());
    if (rank_ == 0) {
      course_.samples[index].push_back(static_cast<double>(base::now_ns() - start) * 1e-9 / row);
    }
    return {};
  }

  Course& course_;
  int rank_;
  shm::Heap heap_;
  std::unique_ptr<shm::Engine> engine_;
  std::shared_ptr<const schedule::StepList> barrier_;
  std::vector<std::unique_ptr<std::byte[]>> private_;
  std::array<Buffers, 2> buffers_ = {};  // private, in the heap
};

// A mask that cannot be set leaves the thread where it is: the figures are then those of any core.
void pin(const TimeCallsOptions& options, int rank) {
  if (static_cast<size_t>(rank) >= options.rank_cpus.size()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : options.rank_cpus[static_cast<size_t>(rank)]) CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

void live(Course& course, int rank) {
  while (course.gate == 0) std::this_thread::yield();
  if (course.gate < 0) return;
  pin(course.options, rank);
  course.segment->join(rank);
  Timer timer(course, rank);
  const Status status = timer.run();
  if (!status.ok()) {
    const std::lock_guard lock(course.mutex);
    if (course.status.ok()) course.status = status;
    course.segment->abort(rank, status.code(), status.message());  // the others stop waiting
  }
}

Status run_ranks(Course& course) {
  std::vector<std::jthread> threads;
  try {
    for (int rank = 0; rank < course.options.ranks; ++rank) {
      threads.emplace_back([&course, rank] { live(course, rank); });
    }
    course.gate = 1;
  } catch (const std::system_error& error) {
    course.gate = -1;
    return base::out_of_memory(
        fmt::format("timing calls needs {} threads: {}", course.options.ranks, error.what()));
  }
  threads.clear();
  return course.status;
}

}  // namespace

Status time_calls(std::vector<cost::TimedCall>& calls, const TimeCallsOptions& options) {
  for (const cost::TimedCall& call : calls) {
    if (call.list->ranks != options.ranks) {
      return base::invalid_argument(fmt::format("a list for {} ranks cannot be timed with {} ranks",
                                                call.list->ranks, options.ranks));
    }
  }
  shm::SegmentOptions wanted;
  wanted.ranks = options.ranks;
  wanted.trace_events = 64;
  Course course(calls, options);
  HANJI_ASSIGN_OR_RETURN(course.segment, shm::Segment::create(wanted));
  HANJI_RETURN_IF_ERROR(run_ranks(course));
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<double>& samples = course.samples[i];
    const auto middle = samples.begin() + static_cast<long>((samples.size() - 1) / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    calls[i].seconds = *middle;
  }
  return {};
}

}  // namespace hanji::comm
