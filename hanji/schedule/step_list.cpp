#include "hanji/schedule/step_list.h"

#include <algorithm>

namespace hanji::schedule {

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSync: return "sync";
    case StepKind::kCopy: return "copy";
    case StepKind::kReduce: return "reduce";
    case StepKind::kSend: return "send";
    case StepKind::kRecv: return "recv";
    case StepKind::kCombine: return "combine";
  }
  return "unknown";
}

std::string_view name_of(Place place) {
  switch (place) {
    case Place::kInput: return "input";
    case Place::kOutput: return "output";
    case Place::kSlot: return "slot";
    case Place::kResult: return "result";
  }
  return "unknown";
}

namespace {

int64_t share_of(const StepList& list, int rank) {
  return list.counts.empty() ? list.count : list.counts[rank];
}

int64_t all_shares(const StepList& list) {
  return list.counts.empty() ? list.count * list.ranks : list.count;
}

// What goes from one rank to another in an all_to_all.
int64_t given(const StepList& list, int from, int to) {
  return list.counts.empty() ? list.count : list.counts[from * list.ranks + to];
}

int64_t exchanged(const StepList& list, int rank, Place place) {
  int64_t sum = 0;
  for (int peer = 0; peer < list.ranks; ++peer) {
    sum += place == Place::kInput ? given(list, rank, peer) : given(list, peer, rank);
  }
  return sum;
}

}  // namespace

bool is_message(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kRecv; }

size_t end_of_group(const std::vector<Step>& steps, size_t begin) {
  size_t end = begin + 1;
  while (end < steps.size() && steps[end].joined) ++end;
  return end;
}

int64_t elements_of(const StepList& list, int rank, Place place) {
  if (place == Place::kSlot || place == Place::kResult) return list.slot_elements;
  const bool input = place == Place::kInput;
  const bool at_root = rank == list.root;
  switch (list.routine) {
    case Routine::kBarrier: return 0;
    case Routine::kReduce: return input || at_root ? list.count : 0;
    case Routine::kAllGather: return input ? share_of(list, rank) : all_shares(list);
    case Routine::kReduceScatter: return input ? all_shares(list) : share_of(list, rank);
    case Routine::kGather:
      if (input) return share_of(list, rank);
      return at_root ? all_shares(list) : 0;
    case Routine::kScatter:
      if (!input) return share_of(list, rank);
      return at_root ? all_shares(list) : 0;
    case Routine::kAllToAll: return exchanged(list, rank, place);
    case Routine::kSend: return (rank == 0) == input ? list.count : 0;
    case Routine::kBroadcast:
    case Routine::kAllReduce:
    case Routine::kTreeReduce: return list.count;
  }
  return 0;
}

std::vector<layout::Range> blocks_of(const StepList& list, int rank, Place place) {
  std::vector<layout::Range> blocks;
  int64_t next = 0;
  for (int peer = 0; peer < list.ranks; ++peer) {
    int64_t size = share_of(list, list.counts.empty() ? 0 : peer);
    if (list.routine == Routine::kAllToAll) {
      size = place == Place::kInput ? given(list, rank, peer) : given(list, peer, rank);
    }
    blocks.push_back({next, next + size});
    next += size;
  }
  return blocks;
}

bool touches_peer_tensors(const StepList& list) {
  for (int rank = 0; rank < static_cast<int>(list.per_rank.size()); ++rank) {
    const auto foreign = [rank](const Operand& operand) {
      return operand.rank != rank &&
             (operand.place == Place::kInput || operand.place == Place::kOutput);
    };
    for (const Step& step : list.per_rank[rank]) {
      if (std::any_of(step.from.begin(), step.from.end(), foreign)) return true;
      if (std::any_of(step.to.begin(), step.to.end(), foreign)) return true;
    }
  }
  return false;
}

bool makes_partial_sums(const StepList& list) {
  return std::any_of(list.per_rank.begin(), list.per_rank.end(), [](const auto& steps) {
    return std::any_of(steps.begin(), steps.end(),
                       [](const Step& step) { return step.kind == StepKind::kCombine; });
  });
}

int num_syncs(const StepList& list) {
  if (list.per_rank.empty()) return 0;
  const std::vector<Step>& steps = list.per_rank[0];
  return static_cast<int>(std::count_if(
      steps.begin(), steps.end(), [](const Step& step) { return step.kind == StepKind::kSync; }));
}

Traffic traffic_of(const StepList& list, int rank) {
  Traffic traffic;
  const auto is_foreign = [rank](const Operand& operand) { return operand.rank != rank; };
  for (const Step& step : list.per_rank[rank]) {
    const auto reads = static_cast<int64_t>(step.from.size());
    const auto writes = static_cast<int64_t>(step.to.size());
    const auto foreign = std::count_if(step.from.begin(), step.from.end(), is_foreign) +
                         std::count_if(step.to.begin(), step.to.end(), is_foreign);
    traffic.read += reads * step.count;
    traffic.written += writes * step.count;
    traffic.wire += (foreign + (step.kind == StepKind::kSend)) * step.count;
  }
  return traffic;
}

int64_t traffic_bytes(const StepList& list, int64_t element_bytes) {
  int64_t most = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Traffic traffic = traffic_of(list, rank);
    most = std::max(most, traffic.read + traffic.written);
  }
  return most * element_bytes;
}

int64_t wire_bytes(const StepList& list, int64_t element_bytes) {
  int64_t most = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    most = std::max(most, traffic_of(list, rank).wire);
  }
  return most * element_bytes;
}

}  // namespace hanji::schedule
