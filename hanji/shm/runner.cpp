#include "hanji/shm/internal/runner.h"

#include <algorithm>
#include <cstring>

#include "hanji/base/clock.h"
#include "hanji/shm/internal/verdict.h"

namespace hanji::shm::internal {

using schedule::Step;
using schedule::StepKind;

namespace {

constexpr int64_t kWorthTiming = 64 << 10;  // bytes of a piece, below which a clock read shows
constexpr int64_t kWorthTracing = 4 << 10;  // the same where calls are traced

std::byte* payload_of(Words& words) {
  return reinterpret_cast<std::byte*>(words.data() + kPayloadWord);
}

}  // namespace

Runner::Runner(GroupLines& lines, Stats& stats, trace::Recorder* recorder)
    : lines_(lines), stats_(stats), clock_(lines, stats, recorder), posted_(lines.size()) {
  buffers_.members.resize(lines.size());
  buffers_.factors.resize(lines.size(), 1);
  const Segment& segment = lines.segment();
  for (int member = 0; member < lines.size(); ++member) {
    staging_.push_back(segment.data() +
                       segment.staging_offset(lines.group(), lines.world_rank(member)));
  }
  sequence_ = last_post_ = lines.last_sequence(lines.me());
  first_operation_ = lines.last_operation(lines.me());
}

Result<bool> Runner::run(Operation& operation, int64_t& budget) {
  if (operation.state == Operation::State::kFresh) {
    begin(operation);
  } else if (operation.descriptor.in_line) {  // it may have been moved since, for more open calls
    buffers_.members[lines_.me()].slot = payload_of(operation.words);
  }
  while (budget > 0) {
    if (operation.state == Operation::State::kMeeting) {
      const bool arrived = lines_.arrived(sequence_);
      if (!rung_) {
        lines_.ring();
        rung_ = true;
      }
      if (!arrived) {
        clock_.missed();
        return false;
      }
      clock_.passed(sequence_);
      ++progress_;
      if (!operation.opened) HANJI_RETURN_IF_ERROR(open(operation));
      if (operation.opening_alone) {
        operation.opening_alone = false;
      } else {
        ++operation.step;
      }
      operation.state = Operation::State::kRunning;
    }
    const auto& steps = operation.running->list->per_rank[lines_.me()];
    if (operation.step == steps.size()) return true;
    if (steps[operation.step].kind == StepKind::kSync) {
      post(operation);
    } else if (run_step(operation, budget)) {
      ++operation.step;
    }
  }
  return false;
}

// Own buffers are known now; those of others once the ranks have met.
void Runner::begin(Operation& operation) {
  const Call& call = operation.call;
  buffers_.dtype = call.dtype;
  buffers_.element_bytes = size_of(call.dtype);
  buffers_.op = call.op;
  buffers_.rounding = rounding_of(call.routine);
  MemberBuffers& mine = buffers_.members[lines_.me()];
  mine.input = static_cast<std::byte*>(const_cast<void*>(call.input));
  mine.output = static_cast<std::byte*>(call.output);
  mine.stride = call.input_stride;
  // Double-buffered: peers may still read what the operation before left in the other set.
  const size_t set = operation.descriptor.operation % kStagingSets;
  for (int member = 0; member < lines_.size(); ++member) {
    std::byte* staging = staging_[member] + set * kStagingPlaces * kStagingBytes;
    buffers_.members[member].slot =
        operation.descriptor.in_line ? payload_of(posted_[member]) : staging;
    buffers_.members[member].result = staging + kStagingBytes;
  }
  if (operation.descriptor.operation > lines_.last_operation(lines_.me())) {
    lines_.set_operation(operation.descriptor.operation);
  }
  operation.words = encode(operation.descriptor);
  if (operation.descriptor.in_line) mine.slot = payload_of(operation.words);
  operation.running = operation.program.get();
  operation.opening_alone = operation.program->touches_peers && operation.program_if_private;
  operation.state = Operation::State::kRunning;
  if (operation.opening_alone) post(operation);
}

void Runner::post(Operation& operation) {
  ++sequence_;
  if (sequence_ > last_post_) {
    post_next(operation.words);
    rung_ = false;
  }
  lines_.start_asking();
  operation.state = Operation::State::kMeeting;
}

void Runner::post_next(const Words& words) {
  clock_.post(++last_post_);
  lines_.post(last_post_, words);
}

// Which lines are free: see ChannelRank. A group has two, of which none ever is.
bool Runner::post_ahead(Operation& operation) {
  const uint64_t last = last_post_ + static_cast<uint64_t>(operation.program->num_syncs);
  if (!operation.only_posts || last > sequence_ + lines_.num_lines() - 2) return false;
  lines_.set_operation(operation.descriptor.operation);
  const Words words = encode(operation.descriptor);
  while (last_post_ < last) post_next(words);
  lines_.ring();
  return true;
}

// All ranks have posted what they were called with, and all look at the same lines.
Status Runner::open(Operation& operation) {
  bool same = true;
  posted_[lines_.me()] = operation.words;
  for (int member = 0; member < lines_.size(); ++member) {
    if (member == lines_.me()) continue;
    lines_.read(member, sequence_, posted_[member]);
    same &= same_call(posted_[member], operation.words);
  }
  if (!same) return mismatch_verdict(lines_, posted_, operation.descriptor.operation);
  operation.opened = true;
  if (operation.call.op == schedule::ReduceOp::kPremulSum) {
    for (int member = 0; member < lines_.size(); ++member) {
      buffers_.factors[member] = decode(posted_[member]).factor;
    }
  }
  if (operation.program->touches_peers) return resolve_peers(operation);
  return {};
}

// Where a buffer of another process lies here; null if it is private.
std::byte* Runner::at(int64_t offset) const {
  const Segment& segment = lines_.segment();
  const bool inside = offset >= 0 && offset < static_cast<int64_t>(segment.size());
  return inside ? segment.data() + offset : nullptr;
}

// Finds every buffer that some rank touches from outside, or takes the list for private ones.
Status Runner::resolve_peers(Operation& operation) {
  const Program& program = *operation.program;
  std::string outside;
  for (int member = 0; member < lines_.size(); ++member) {
    const Descriptor theirs = decode(posted_[member]);
    std::byte* input = at(theirs.input);
    std::byte* output = at(theirs.output);
    const bool missing = (program.input_touched[member] && input == nullptr) ||
                         (program.output_touched[member] && output == nullptr);
    if (missing && operation.call.count != 0) outside += " " + std::to_string(member);
    if (member == lines_.me()) continue;
    MemberBuffers& buffers = buffers_.members[member];
    buffers.input = input;
    buffers.output = output;
    buffers.stride = theirs.stride;
  }
  if (outside.empty()) {
    // The opening sync is also the list's first step.
    if (operation.opening_alone && program.starts_with_sync) operation.step = 1;
    return {};
  }
  if (operation.program_if_private == nullptr) {
    return base::invalid_argument(describe_call(lines_, lines_.me(), operation.descriptor) +
                                  ": buffers of rank" + outside +
                                  " lie outside the heap, and this call has no other way; "
                                  "allocate them from the heap");
  }
  operation.running = operation.program_if_private.get();
  operation.step = operation.running->starts_with_sync ? 1 : 0;
  return {};
}

// One piece of a step. True once the step is complete.
bool Runner::run_step(Operation& operation, int64_t& budget) {
  const Step& step = operation.running->list->per_rank[lines_.me()][operation.step];
  if (operation.descriptor.in_line) {
    transfer_.run_small(step, buffers_);
    ++progress_;
    return true;
  }
  const int64_t traffic = Transfer::traffic(step, buffers_.element_bytes);
  const int64_t worth = clock_.on() ? kWorthTracing : kWorthTiming;
  const bool timed = std::min(budget, (step.count - operation.element) * traffic) >= worth;
  const int64_t start = timed ? base::now_ns() : 0;
  const int64_t done = transfer_.run(step, buffers_, operation.element, budget);
  if (timed) {
    const int64_t end = base::now_ns();
    stats_.busy_ns += end - start;
    clock_.moved(start, end);
  }
  budget -= done * traffic;
  ++progress_;
  operation.element += done;
  if (operation.element < step.count) return false;
  operation.element = 0;
  return true;
}

}  // namespace hanji::shm::internal
