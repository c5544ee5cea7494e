#include "hanji/shm/internal/preparation.h"

#include <fmt/format.h>

#include "hanji/shm/reduce.h"

namespace hanji::shm::internal {
namespace {

using schedule::Place;
using schedule::ReduceOp;
using schedule::Routine;
using schedule::StepList;

std::string name_of_list(const StepList& list) {
  return fmt::format("step list {} {}", name_of(list.routine), list.algorithm);
}

// Whether input and output of `rank` share memory.
bool overlap(const Call& call, const StepList& list, int rank) {
  const auto bytes = [&](Place place) {
    return static_cast<size_t>(elements_of(list, rank, place)) * size_of(call.dtype);
  };
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  if (input == nullptr || output == nullptr) return false;
  return input < output + bytes(Place::kOutput) && output < input + bytes(Place::kInput);
}

// The list does what is called, with buffers that are there.
Status check_fit(const Call& call, const Program& program, int rank) {
  const StepList& list = *program.list;
  if (list.routine != call.routine || list.count != call.count || list.root != call.root) {
    return base::invalid_argument(fmt::format(
        "{} of {} elements with root {}, for a call of {} with {} elements and root {}; select "
        "the list for the call",
        name_of_list(list), list.count, list.root, name_of(call.routine), call.count, call.root));
  }
  if (!list.in_place && overlap(call, list, rank)) {
    return base::invalid_argument(fmt::format(
        "{}: input and output share memory, and this list needs them apart; select one for a "
        "call in place",
        name_of_list(list)));
  }
  if (program.num_parts > call.num_parts) {
    return base::invalid_argument(fmt::format("{} reads {} parts of this rank's input, {} given",
                                              name_of_list(list), program.num_parts,
                                              call.num_parts));
  }
  const bool no_input = program.own_input && call.input == nullptr;
  const bool no_output = program.own_output && call.output == nullptr;
  if (call.count != 0 && (no_input || no_output)) {
    return base::invalid_argument(fmt::format("{}: this rank's {} is null, and the list uses it",
                                              name_of_list(list), no_input ? "input" : "output"));
  }
  return {};
}

}  // namespace

Status Preparation::prepare(const Call& call, uint64_t number, Operation& operation) {
  operation.state = Operation::State::kFresh;
  operation.opened = false;
  operation.step = 0;
  operation.element = 0;
  if (call.steps == nullptr) return base::invalid_argument("call without a step list");
  // Training repeats its calls: what an equal call was told before still holds.
  if (call == operation.call) {
    operation.descriptor.operation = number;
    return {};
  }
  operation.call = {};
  const bool scales = call.op == ReduceOp::kAvg || call.op == ReduceOp::kPremulSum;
  if (scales && call.routine == Routine::kTreeReduce) {
    return base::unsupported(
        fmt::format("tree_reduce({}); reduce by sum and scale once", name_of(call.op)));
  }
  if (reduces(call.routine)) HANJI_RETURN_IF_ERROR(check_op(call.op, call.dtype));
  HANJI_ASSIGN_OR_RETURN(operation.program, program_for(call, call.steps));
  operation.program_if_private = nullptr;
  if (call.steps_if_private != nullptr) {
    HANJI_ASSIGN_OR_RETURN(operation.program_if_private, program_for(call, call.steps_if_private));
    if (operation.program_if_private->touches_peers) {
      return base::invalid_argument(name_of_list(*call.steps_if_private) +
                                    " is for private buffers, but touches those of other ranks");
    }
  }
  operation.call = call;
  operation.descriptor = describe(operation, number);
  operation.only_posts = only_posts(operation);
  return {};
}

Result<std::shared_ptr<const Program>> Preparation::program_for(
    const Call& call, const std::shared_ptr<const StepList>& list) {
  HANJI_ASSIGN_OR_RETURN(auto program, programs_.get(list));
  HANJI_RETURN_IF_ERROR(check_fit(call, *program, lines_.me()));
  if (call.op == ReduceOp::kPremulSum && reduces(call.routine) && !program->sums_inputs) {
    return base::unsupported(name_of_list(*list) +
                             " sums what it has summed before, and premul_sum has a factor for "
                             "each input; take a flat, direct or staged list");
  }
  HANJI_RETURN_IF_ERROR(back_staging(*program, call));
  return program;
}

// Memory for this rank's slots and results, before anything is written there.
Status Preparation::back_staging(const Program& program, const Call& call) {
  const size_t element_bytes = size_of(call.dtype);
  const size_t bytes = static_cast<size_t>(program.list->slot_elements) * element_bytes;
  if (bytes <= backed_staging_) return {};
  if (fits_in_line(program, call.op, program.list->count, element_bytes)) return {};
  if (bytes > kStagingBytes) {
    return base::unsupported(fmt::format("{}: slots of {} bytes, {} are there; use smaller chunks",
                                         name_of_list(*program.list), bytes, kStagingBytes));
  }
  Segment& segment = lines_.segment();
  const size_t offset = segment.staging_offset(lines_.group(), lines_.world_rank(lines_.me()));
  for (size_t i = 0; i < kStagingSets * kStagingPlaces; ++i) {
    HANJI_RETURN_IF_ERROR(segment.grow(offset + i * kStagingBytes, bytes));
  }
  backed_staging_ = bytes;
  return {};
}

Descriptor Preparation::describe(const Operation& operation, uint64_t number) const {
  const Call& call = operation.call;
  Descriptor d;
  d.routine = call.routine;
  d.dtype = call.dtype;
  d.op = call.op;
  d.root = call.root;
  d.operation = number;
  d.tag = call.tag;
  d.call_site = call.call_site;
  d.count = call.count;
  d.uneven = !call.steps->counts.empty();
  d.fingerprint = operation.program->fingerprint;
  if (operation.program_if_private != nullptr) {
    d.fingerprint = d.fingerprint * 31 + operation.program_if_private->fingerprint;
  }
  d.in_line = fits_in_line(*operation.program, call.op, call.count, size_of(call.dtype));
  const int64_t before_last_part = (call.num_parts - 1) * call.input_stride;
  d.input =
      offset_of(call.input, before_last_part + elements_of(*call.steps, lines_.me(), Place::kInput),
                call.dtype);
  d.output =
      offset_of(call.output, elements_of(*call.steps, lines_.me(), Place::kOutput), call.dtype);
  d.stride = call.input_stride;
  d.factor = call.factor;
  return d;
}

// That peers can map what they touch, which decides the list, depends on this rank alone.
bool Preparation::only_posts(const Operation& operation) const {
  const Program& program = *operation.program;
  if (!program.only_syncs || !program.touches_peers) return false;
  for (int member = 0; member < lines_.size(); ++member) {
    const bool mine = member == lines_.me();
    if (program.input_touched[member] && !(mine && operation.descriptor.input != kPrivate)) {
      return false;
    }
    if (program.output_touched[member] && !(mine && operation.descriptor.output != kPrivate)) {
      return false;
    }
  }
  return true;
}

// Where the whole buffer lies in the heap, or kPrivate.
int64_t Preparation::offset_of(const void* buffer, int64_t elements, DType dtype) const {
  const Segment& segment = lines_.segment();
  const auto base = reinterpret_cast<uintptr_t>(segment.data());
  const auto first = reinterpret_cast<uintptr_t>(buffer);
  if (first < base + segment.heap_offset(0) || first >= base + segment.size()) return kPrivate;
  const uint64_t room = base + segment.size() - first;
  if (static_cast<uint64_t>(elements) > room / size_of(dtype)) return kPrivate;
  return static_cast<int64_t>(first - base);
}

}  // namespace hanji::shm::internal
