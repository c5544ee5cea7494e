#include "hanji/shm/internal/program.h"

#include <algorithm>
#include <string>

#include "hanji/base/checksum.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/staging.h"
#include "hanji/shm/internal/flag_line.h"
#include "hanji/shm/internal/reduction.h"
#include "hanji/shm/reduce.h"

namespace hanji::shm::internal {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;
using schedule::StepKind;
using schedule::StepList;

bool is_sync(const Step& step) { return step.kind == StepKind::kSync; }

bool is_for_a_network(const Step& step) {
  return is_message(step.kind) || step.kind == StepKind::kCombine;
}

std::string place_of_step(int rank, size_t index) {
  return "step " + std::to_string(index) + " of rank " + std::to_string(rank) + " ";
}

void append(std::vector<int64_t>& words, const std::vector<Operand>& operands) {
  words.push_back(static_cast<int64_t>(operands.size()));
  for (const Operand& operand : operands) {
    words.insert(words.end(),
                 {operand.rank, static_cast<int64_t>(operand.place), operand.part, operand.begin});
  }
}

uint32_t fingerprint_of(const StepList& list) {
  std::vector<int64_t> words = {static_cast<int64_t>(list.routine),
                                list.ranks,
                                list.count,
                                list.keeps_order,
                                list.slot_elements,
                                list.root,
                                list.in_place};
  words.insert(words.end(), list.counts.begin(), list.counts.end());
  for (const auto& owner : list.owners) words.insert(words.end(), {owner.begin, owner.end});
  for (const auto& steps : list.per_rank) {
    words.push_back(static_cast<int64_t>(steps.size()));
    for (const Step& step : steps) {
      words.insert(words.end(), {static_cast<int64_t>(step.kind), step.count, step.peer});
      append(words, step.from);
      append(words, step.to);
      words.push_back(static_cast<int64_t>(step.tree.size()));
      words.insert(words.end(), step.tree.begin(), step.tree.end());
    }
  }
  return static_cast<uint32_t>(base::xxh3(std::as_bytes(std::span(words))));
}

// Walks one rank's steps; `mine` is the rank that the program is for.
class Inspection {
 public:
  Inspection(Program& program, int mine) : program_(program), mine_(mine) {}

  Status walk(int rank) {
    const auto& steps = program_.list->per_rank[rank];
    if (std::any_of(steps.begin(), steps.end(), is_for_a_network)) {
      return base::unsupported("rank " + std::to_string(rank) +
                               " sends or makes partial sums; ranks that share memory run flat, "
                               "direct or staged lists");
    }
    const auto num_syncs = static_cast<int>(std::count_if(steps.begin(), steps.end(), is_sync));
    if (num_syncs == 0 || (rank != 0 && num_syncs != program_.num_syncs)) {
      return base::invalid_argument(
          "rank " + std::to_string(rank) + " has " + std::to_string(num_syncs) +
          " syncs, rank 0 has " + std::to_string(program_.num_syncs) + "; at least one, all alike");
    }
    program_.num_syncs = num_syncs;
    if (rank == mine_) {
      program_.starts_with_sync = is_sync(steps[0]);
      program_.only_syncs = std::ranges::all_of(steps, is_sync);
    }
    int passed = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      passed += is_sync(steps[i]);
      const Status status = look(rank, steps[i], passed);
      if (!status.ok()) return status.at(place_of_step(rank, i));
    }
    return {};
  }

 private:
  Status look(int rank, const Step& step, int passed) {
    if (step.to.size() > kMaxDestinations) {
      return base::unsupported("writes " + std::to_string(step.to.size()) + " buffers; at most 64");
    }
    note_origins(step);
    if (step.kind == StepKind::kReduce) {
      HANJI_RETURN_IF_ERROR(check_tree(step.tree, static_cast<int>(step.from.size())));
    }
    for (const Operand& from : step.from) HANJI_RETURN_IF_ERROR(look(rank, from, passed));
    for (const Operand& to : step.to) {
      if (to.rank != rank && !is_tensor(to.place)) {
        return base::invalid_argument("writes staging of rank " + std::to_string(to.rank) +
                                      "; only its owner may");
      }
      HANJI_RETURN_IF_ERROR(look(rank, to, passed));
    }
    return {};
  }

  // A slot holds nothing but what its rank has copied there from its input.
  void note_origins(const Step& step) {
    const bool reduces = step.kind == StepKind::kReduce;
    for (const Operand& from : step.from) {
      if (reduces && from.place != Place::kInput && from.place != Place::kSlot) {
        program_.sums_inputs = false;
      }
    }
    for (const Operand& to : step.to) {
      if (to.place != Place::kSlot) continue;
      if (reduces || step.from[0].place != Place::kInput || step.from[0].rank != to.rank) {
        program_.sums_inputs = false;
      }
    }
  }

  Status look(int rank, const Operand& operand, int passed) {
    program_.uses_result |= operand.place == Place::kResult;
    const bool input = operand.place == Place::kInput;
    if (operand.rank == mine_ && is_tensor(operand.place)) {
      (input ? program_.own_input : program_.own_output) = true;
      if (input) program_.num_parts = std::max(program_.num_parts, operand.part + 1);
    }
    if (operand.rank == rank) return {};
    if (passed == 0) {
      return base::invalid_argument("touches memory of rank " + std::to_string(operand.rank) +
                                    " before the first sync");
    }
    if (!is_tensor(operand.place)) return {};
    if (passed == program_.num_syncs) {
      return base::invalid_argument("touches a tensor of rank " + std::to_string(operand.rank) +
                                    " after the last sync");
    }
    program_.touches_peers = true;
    (input ? program_.input_touched : program_.output_touched)[operand.rank] = true;
    return {};
  }

  Program& program_;
  int mine_;
};

}  // namespace

Result<Program> inspect(std::shared_ptr<const StepList> list, int rank, int size) {
  if (list->ranks != size) {
    return base::invalid_argument("step list for " + std::to_string(list->ranks) +
                                  " ranks in a group of " + std::to_string(size));
  }
  const std::string what =
      "step list " + std::string(name_of(list->routine)) + " " + list->algorithm;
  if (Status status = schedule::check_bounds(*list); !status.ok()) return status.at(what);
  Program program;
  program.fingerprint = fingerprint_of(*list);
  program.input_touched.resize(size);
  program.output_touched.resize(size);
  program.list = std::move(list);
  program.wire_elements = schedule::traffic_of(*program.list, rank).wire;
  Inspection inspection(program, rank);
  for (int each = 0; each < size; ++each) {
    if (Status status = inspection.walk(each); !status.ok()) return status.at(what);
  }
  return program;
}

bool fits_in_line(const Program& program, schedule::ReduceOp op, int64_t count,
                  size_t element_bytes) {
  const size_t room =
      op == schedule::ReduceOp::kPremulSum ? kPayloadBytesBesideFactor : kPayloadBytes;
  return program.num_syncs == 1 && !program.touches_peers && !program.uses_result &&
         count <= kMaxElementsInLine &&
         static_cast<size_t>(program.list->slot_elements) * element_bytes <= room;
}

Result<std::shared_ptr<const Program>> ProgramCache::get(
    const std::shared_ptr<const StepList>& list) {
  const auto address = reinterpret_cast<uintptr_t>(list.get());
  auto& entry = programs_[(address >> 5 ^ address >> 13) % kEntries];
  if (entry == nullptr || entry->list != list) {
    HANJI_ASSIGN_OR_RETURN(Program program, inspect(list, rank_, size_));
    entry = std::make_shared<const Program>(std::move(program));
  }
  return entry;
}

}  // namespace hanji::shm::internal
