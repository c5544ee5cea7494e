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

int64_t elements_of(const StepList& list, Place place) {
  if (place == Place::kSlot || place == Place::kResult) return list.slot_elements;
  const bool wide = (list.routine == Routine::kReduceScatter && place == Place::kInput) ||
                    (list.routine == Routine::kAllGather && place == Place::kOutput);
  return wide ? list.count * list.ranks : list.count;
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
