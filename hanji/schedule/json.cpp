#include "hanji/schedule/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "hanji/base/json.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/internal/limits.h"

namespace hanji::schedule {
namespace {

using base::Json;
using namespace internal;

constexpr int64_t kVersion = 3;  // 3: combine, joined, parameter; 2: counts, in_place
constexpr std::array kKinds = {StepKind::kSync, StepKind::kCopy, StepKind::kReduce,
                               StepKind::kSend, StepKind::kRecv, StepKind::kCombine};
constexpr std::array kPlaces = {Place::kInput, Place::kOutput, Place::kSlot, Place::kResult};

struct Field {
  const char* name;
  bool used;
};

bool moves_from(StepKind kind) { return kind != StepKind::kSync && kind != StepKind::kRecv; }
bool moves_to(StepKind kind) { return kind != StepKind::kSync && kind != StepKind::kSend; }
bool has_tree(StepKind kind) { return kind == StepKind::kReduce || kind == StepKind::kCombine; }

Json operands_to_json(const std::vector<Operand>& operands) {
  Json json = Json::array();
  for (const Operand& operand : operands) {
    json.push_back(
        Json::array({operand.rank, name_of(operand.place), operand.part, operand.begin}));
  }
  return json;
}

Json step_to_json(const Step& step) {
  Json json = {{"kind", name_of(step.kind)}};
  if (step.kind == StepKind::kSync) return json;
  json["count"] = step.count;
  if (moves_from(step.kind)) json["from"] = operands_to_json(step.from);
  if (moves_to(step.kind)) json["to"] = operands_to_json(step.to);
  if (has_tree(step.kind)) json["tree"] = step.tree;
  if (is_message(step.kind)) {
    json["peer"] = step.peer;
    json["joined"] = step.joined;
  }
  return json;
}

Status bad_list(std::string message) { return base::corrupt(std::move(message)); }

/// Exactly the used fields, no other.
Status check_keys(const Json& json, std::initializer_list<Field> fields) {
  if (!json.is_object()) return bad_list("is not an object");
  size_t num_used = 0;
  for (const Field& field : fields) {
    if (!field.used) continue;
    ++num_used;
    if (!json.contains(field.name)) return bad_list(fmt::format("has no '{}'", field.name));
  }
  if (json.size() == num_used) return {};
  for (const auto& [key, value] : json.items()) {
    const auto same = [&](const Field& field) { return field.used && key == field.name; };
    if (std::none_of(fields.begin(), fields.end(), same)) {
      return bad_list(fmt::format("has an unknown member '{}'", key.substr(0, 32)));
    }
  }
  return bad_list("has repeated members");
}

Result<int64_t> read_integer(const Json& json, const char* what, layout::Range allowed) {
  if (!json.is_number_integer()) return bad_list(fmt::format("{} is not an integer", what));
  const bool huge = json.is_number_unsigned() &&
                    json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t value = huge ? std::numeric_limits<int64_t>::max() : json.get<int64_t>();
  if (value < allowed.begin || value >= allowed.end) {
    return bad_list(fmt::format("{} is {}, outside [{}, {})", what, base::dump(json), allowed.begin,
                                allowed.end));
  }
  return value;
}

Result<bool> read_flag(const Json& json, const char* what) {
  if (!json.is_boolean()) return bad_list(fmt::format("{} is neither true nor false", what));
  return json.get<bool>();
}

Result<std::string> read_text(const Json& json, const char* what) {
  if (!json.is_string()) return bad_list(fmt::format("{} is not a string", what));
  return json.get<std::string>();
}

/// The element of `all` whose name is written there.
template <class T, size_t n>
Result<T> read_named(const Json& json, const char* what, const std::array<T, n>& all) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, read_text(json, what));
  for (const T value : all) {
    if (name_of(value) == text) return value;
  }
  return bad_list(fmt::format("{} '{}' is unknown", what, text.substr(0, 32)));
}

Result<Operand> read_operand(const Json& json) {
  if (!json.is_array() || json.size() != 4) {
    return bad_list("an operand is not [rank, place, part, begin]");
  }
  Operand operand;
  HANJI_ASSIGN_OR_RETURN(operand.rank, read_integer(json[0], "rank", {0, kMaxRanks}));
  HANJI_ASSIGN_OR_RETURN(operand.place, read_named(json[1], "place", kPlaces));
  HANJI_ASSIGN_OR_RETURN(operand.part, read_integer(json[2], "part", {0, kMaxOperands}));
  HANJI_ASSIGN_OR_RETURN(operand.begin, read_integer(json[3], "begin", {0, kMaxElements + 1}));
  return operand;
}

Result<std::vector<Operand>> read_operands(const Json& json) {
  if (!json.is_array()) return bad_list("operands are not an array");
  std::vector<Operand> operands;
  for (const Json& item : json) {
    HANJI_ASSIGN_OR_RETURN(const Operand operand, read_operand(item));
    operands.push_back(operand);
  }
  return operands;
}

Result<std::vector<int>> read_tree(const Json& json) {
  if (!json.is_array()) return bad_list("tree is not an array");
  std::vector<int> tree;
  for (const Json& item : json) {
    HANJI_ASSIGN_OR_RETURN(const int64_t value, read_integer(item, "tree", {-1, kMaxOperands}));
    tree.push_back(static_cast<int>(value));
  }
  return tree;
}

Result<Step> read_step(const Json& json) {
  if (!json.is_object() || !json.contains("kind")) return bad_list("is no step: it has no 'kind'");
  Step step;
  HANJI_ASSIGN_OR_RETURN(step.kind, read_named(json["kind"], "kind", kKinds));
  const bool reduces = has_tree(step.kind);
  const bool is_sent = is_message(step.kind);
  HANJI_RETURN_IF_ERROR(check_keys(json, {{"kind", true},
                                          {"count", step.kind != StepKind::kSync},
                                          {"from", moves_from(step.kind)},
                                          {"to", moves_to(step.kind)},
                                          {"tree", reduces},
                                          {"peer", is_sent},
                                          {"joined", is_sent}}));
  if (step.kind == StepKind::kSync) return step;
  HANJI_ASSIGN_OR_RETURN(step.count, read_integer(json["count"], "count", {1, kMaxElements + 1}));
  if (moves_from(step.kind)) {
    HANJI_ASSIGN_OR_RETURN(step.from, read_operands(json["from"]));
  }
  if (moves_to(step.kind)) {
    HANJI_ASSIGN_OR_RETURN(step.to, read_operands(json["to"]));
  }
  if (reduces) {
    HANJI_ASSIGN_OR_RETURN(step.tree, read_tree(json["tree"]));
  }
  if (is_sent) {
    HANJI_ASSIGN_OR_RETURN(step.peer, read_integer(json["peer"], "peer", {0, kMaxRanks}));
    HANJI_ASSIGN_OR_RETURN(step.joined, read_flag(json["joined"], "joined"));
  }
  return step;
}

Result<std::vector<Step>> read_steps(const Json& json, size_t rank) {
  if (!json.is_array()) return bad_list(fmt::format("rank {}: its steps are not an array", rank));
  std::vector<Step> steps;
  for (size_t i = 0; i < json.size(); ++i) {
    Result<Step> step = read_step(json[i]);
    if (!step.ok()) return step.status().at(fmt::format("rank {}, step {}", rank, i));
    steps.push_back(*std::move(step));
  }
  return steps;
}

Result<std::vector<layout::Range>> read_owners(const Json& json) {
  if (!json.is_array()) return bad_list("owners are not an array");
  std::vector<layout::Range> owners;
  for (const Json& item : json) {
    if (!item.is_array() || item.size() != 2) return bad_list("an owner is not [begin, end]");
    layout::Range range;
    HANJI_ASSIGN_OR_RETURN(range.begin, read_integer(item[0], "owner", {0, kMaxGrains + 1}));
    HANJI_ASSIGN_OR_RETURN(range.end, read_integer(item[1], "owner", {0, kMaxGrains + 1}));
    owners.push_back(range);
  }
  return owners;
}

Result<std::vector<int64_t>> read_counts(const Json& json) {
  if (!json.is_array()) return bad_list("counts are not an array");
  std::vector<int64_t> counts;
  for (const Json& item : json) {
    HANJI_ASSIGN_OR_RETURN(const int64_t count,
                           read_integer(item, "counts", {0, kMaxElements + 1}));
    counts.push_back(count);
  }
  return counts;
}

Result<StepList> read_header(const Json& json) {
  HANJI_RETURN_IF_ERROR(check_keys(json, {{"version", true},
                                          {"routine", true},
                                          {"algorithm", true},
                                          {"ranks", true},
                                          {"count", true},
                                          {"keeps_order", true},
                                          {"slot_elements", true},
                                          {"root", true},
                                          {"parameter", true},
                                          {"counts", true},
                                          {"in_place", true},
                                          {"owners", true},
                                          {"per_rank", true}}));
  HANJI_RETURN_IF_ERROR(
      read_integer(json["version"], "version", {kVersion, kVersion + 1}).status());
  StepList list;
  HANJI_ASSIGN_OR_RETURN(const std::string routine, read_text(json["routine"], "routine"));
  const auto named = routine_named(routine);
  if (!named) return bad_list(fmt::format("routine '{}' is unknown", routine.substr(0, 32)));
  list.routine = *named;
  HANJI_ASSIGN_OR_RETURN(list.algorithm, read_text(json["algorithm"], "algorithm"));
  HANJI_ASSIGN_OR_RETURN(list.ranks, read_integer(json["ranks"], "ranks", {1, kMaxRanks + 1}));
  HANJI_ASSIGN_OR_RETURN(list.count, read_integer(json["count"], "count", {0, kMaxElements + 1}));
  HANJI_ASSIGN_OR_RETURN(list.keeps_order, read_flag(json["keeps_order"], "keeps_order"));
  HANJI_ASSIGN_OR_RETURN(list.slot_elements, read_integer(json["slot_elements"], "slot_elements",
                                                          {0, kMaxElements + 1}));
  HANJI_ASSIGN_OR_RETURN(list.root, read_integer(json["root"], "root", {0, kMaxRanks}));
  HANJI_ASSIGN_OR_RETURN(list.parameter,
                         read_integer(json["parameter"], "parameter", {0, kMaxSteps + 1}));
  HANJI_ASSIGN_OR_RETURN(list.counts, read_counts(json["counts"]));
  HANJI_ASSIGN_OR_RETURN(list.in_place, read_flag(json["in_place"], "in_place"));
  HANJI_ASSIGN_OR_RETURN(list.owners, read_owners(json["owners"]));
  return list;
}

Result<StepList> read_list(const Json& json) {
  HANJI_ASSIGN_OR_RETURN(StepList list, read_header(json));
  const Json& per_rank = json["per_rank"];
  if (!per_rank.is_array()) return bad_list("per_rank is not an array");
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    HANJI_ASSIGN_OR_RETURN(std::vector<Step> steps, read_steps(per_rank[rank], rank));
    list.per_rank.push_back(std::move(steps));
  }
  const Status bounds = check_bounds(list);
  if (!bounds.ok()) return bad_list(bounds.message());
  return list;
}

}  // namespace

std::string to_json(const StepList& list) {
  Json json = {{"version", kVersion},
               {"routine", name_of(list.routine)},
               {"algorithm", list.algorithm},
               {"ranks", list.ranks},
               {"count", list.count},
               {"keeps_order", list.keeps_order},
               {"slot_elements", list.slot_elements},
               {"root", list.root},
               {"parameter", list.parameter},
               {"counts", list.counts},
               {"in_place", list.in_place}};
  json["owners"] = Json::array();
  for (const layout::Range& range : list.owners) {
    json["owners"].push_back(Json::array({range.begin, range.end}));
  }
  json["per_rank"] = Json::array();
  for (const auto& steps : list.per_rank) {
    Json rank = Json::array();
    for (const Step& step : steps) rank.push_back(step_to_json(step));
    json["per_rank"].push_back(std::move(rank));
  }
  return base::dump(json);
}

Result<StepList> from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 8));
  Result<StepList> list = read_list(json);
  return list.ok() ? std::move(list) : list.status().at("step list");
}

}  // namespace hanji::schedule
