#include "hanji/shm/snapshot_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/shm/internal/hang_words.h"

namespace hanji::shm {
namespace {

using base::Json;

/// A rank in one of its groups; no group where it has joined none.
struct Row {
  const RankSnapshot* rank;
  const GroupSnapshot* group = nullptr;
  const MemberSnapshot* member = nullptr;
};

std::string_view doing(const Row& row) {
  if (row.rank->presence == RankPresence::kNeverCame) return "never came";
  if (row.rank->presence == RankPresence::kLeft) return "left";
  if (!row.rank->alive()) return "dead";
  if (row.member == nullptr) return "no call yet";
  if (row.member->failed != Code::kOk) return "gave up";
  if (row.member->waiting_ns) return "waits";
  return row.member->inside() ? "in the call" : "between calls";
}

/// Its last completed call here, as long as its recorder still has it.
const CompletedCall* last_completed(const Row& row) {
  for (auto call = row.rank->calls.rbegin(); call != row.rank->calls.rend(); ++call) {
    if (row.group != nullptr && call->group == row.group->id) return &*call;
  }
  return nullptr;
}

/// Since when it waits, or has nothing to do with its peers.
std::optional<double> seconds_since(const Snapshot& snapshot, const Row& row) {
  if (row.member == nullptr || !row.rank->alive()) return {};
  int64_t since = 0;
  if (row.member->waiting_ns) {
    since = *row.member->waiting_ns;
  } else if (const CompletedCall* call = last_completed(row); call && !row.member->inside()) {
    since = call->end_ns;
  } else {
    return {};
  }
  return static_cast<double>(std::max<int64_t>(snapshot.taken_ns - since, 0)) / 1e9;
}

/// Every group where the rank is inside a call; else the one where it last was.
std::vector<Row> rows_of(const Snapshot& snapshot, const RankSnapshot& rank) {
  std::vector<Row> rows, others;
  for (const GroupSnapshot& group : snapshot.groups) {
    for (const MemberSnapshot& member : group.members) {
      if (member.rank != rank.rank) continue;
      (member.inside() ? rows : others).push_back({&rank, &group, &member});
    }
  }
  if (!rows.empty()) return rows;
  const auto end_of = [](const Row& row) {
    const CompletedCall* call = last_completed(row);
    return std::pair(call ? call->end_ns : 0, row.member->begun);
  };
  const auto last = std::ranges::max_element(others, {}, end_of);
  return {last == others.end() ? Row{&rank} : *last};
}

std::vector<Row> all_rows(const Snapshot& snapshot) {
  std::vector<Row> rows;
  for (const RankSnapshot& rank : snapshot.ranks) {
    for (const Row& row : rows_of(snapshot, rank)) rows.push_back(row);
  }
  return rows;
}

std::string name_of_group(const GroupSnapshot& group) {
  if (group.sender) {
    return fmt::format("{}->{}", *group.sender, group.receiver.value_or(group.members.back().rank));
  }
  return group.name.empty() ? std::to_string(group.id) : group.name;
}

using Cells = std::vector<std::string>;

Cells cells_of(const Snapshot& snapshot, const Row& row) {
  Cells cells = {std::to_string(row.rank->rank), std::to_string(row.rank->pid),
                 std::string(1, row.rank->state)};
  const auto seconds = seconds_since(snapshot, row);
  const bool posted = row.member != nullptr && row.member->call;
  cells.push_back(row.group ? name_of_group(*row.group) : "-");
  cells.push_back(row.member ? std::to_string(row.member->begun) : "-");
  cells.push_back(posted ? row.member->call->routine : "-");
  cells.push_back(posted ? std::to_string(row.member->call->count) : "-");
  cells.push_back(posted ? row.member->call->dtype : "-");
  cells.emplace_back(doing(row));
  cells.push_back(seconds ? base::format_seconds(*seconds) : "-");
  cells.push_back(posted ? row.member->call->call_site : "-");
  return cells;
}

std::string lay_out(const std::vector<Cells>& lines) {
  std::vector<size_t> widths(lines.front().size());
  for (const Cells& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    for (size_t i = 0; i + 1 < line.size(); ++i)
      text += fmt::format("{:<{}}  ", line[i], widths[i]);
    text += line.back() + "\n";
  }
  return text;
}

bool has_open_call(const GroupSnapshot& group) {
  return std::ranges::any_of(group.members, &MemberSnapshot::inside);
}

std::string list_or_none(const std::vector<int>& ranks) {
  return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "));
}

std::span<const CompletedCall> last_calls(const RankSnapshot& rank, size_t count) {
  return std::span(rank.calls).last(std::min(count, rank.calls.size()));
}

Json json_of(const PostedCall& call) {
  return {{"operation", call.operation}, {"routine", call.routine},
          {"dtype", call.dtype},         {"count", call.count},
          {"arguments", call.arguments}, {"call_site", call.call_site}};
}

Json json_of(const Snapshot& snapshot, const Row& row) {
  const auto seconds = seconds_since(snapshot, row);
  Json json;
  json["rank"] = row.rank->rank;
  json["pid"] = row.rank->pid;
  json["coordinates"] = row.rank->coordinates;
  json["state"] = std::string(1, row.rank->state);
  json["step"] = row.rank->step;
  json["in"] = row.rank->spans;
  json["group"] = row.group ? Json(row.group->id) : Json();
  json["operation"] = row.member ? Json(row.member->begun) : Json();
  json["completed"] = row.member ? Json(row.member->completed) : Json();
  json["call"] = row.member && row.member->call ? json_of(*row.member->call) : Json();
  json["doing"] = doing(row);
  json["seconds"] = seconds ? Json(*seconds) : Json();
  return json;
}

Json json_of(const GroupSnapshot& group) {
  const uint64_t operation = present_operation(group);
  Json json;
  json["group"] = group.id;
  json["name"] = group.name;
  json["elsewhere"] = group.elsewhere;
  json["sender"] = group.sender ? Json(*group.sender) : Json();
  json["members"] = arrived(group, 0);
  json["operation"] = operation;
  json["arrived"] = arrived(group, operation);
  json["delivered"] = delivered(group, operation);
  return json;
}

Json json_of(int rank, const CompletedCall& call) {
  return {{"rank", rank},
          {"step", call.step},
          {"group", call.group},
          {"operation", call.operation},
          {"routine", call.routine},
          {"dtype", call.dtype},
          {"bytes", call.bytes},
          {"call_site", call.call_site},
          {"start_ns", call.start_ns},
          {"end_ns", call.end_ns}};
}

}  // namespace

std::string table(const Snapshot& snapshot) {
  std::vector<Cells> lines = {{"rank", "pid", "state", "group", "operation", "call", "count",
                               "dtype", "it", "for", "call site"}};
  for (const Row& row : all_rows(snapshot)) lines.push_back(cells_of(snapshot, row));
  std::string text = lay_out(lines);
  for (const GroupSnapshot& group : snapshot.groups) {
    if (!has_open_call(group)) continue;
    const uint64_t operation = present_operation(group);
    text +=
        fmt::format("{}: arrived {}; delivered {}; of ranks {}\n",
                    describe_operation(group, operation), list_or_none(arrived(group, operation)),
                    list_or_none(delivered(group, operation)), list_or_none(arrived(group, 0)));
    if (!group.elsewhere.empty())
      text.insert(text.size() - 1,
                  fmt::format(" here, {} elsewhere", list_or_none(group.elsewhere)));
  }
  if (!snapshot.other_hosts.empty()) {
    text += fmt::format("not known here: {}; run hanji debug there\n",
                        internal::describe_other_hosts(snapshot));
  }
  return text;
}

std::string list_calls(const Snapshot& snapshot, size_t count) {
  std::vector<Cells> lines = {{"rank", "step", "group", "operation", "call", "bytes", "dtype",
                               "ended before", "took", "call site"}};
  for (const RankSnapshot& rank : snapshot.ranks) {
    for (const CompletedCall& call : last_calls(rank, count)) {
      const auto seconds = [](int64_t ns) {
        return base::format_seconds(static_cast<double>(std::max<int64_t>(ns, 0)) / 1e9);
      };
      lines.push_back({std::to_string(rank.rank), std::to_string(call.step),
                       std::to_string(call.group), std::to_string(call.operation), call.routine,
                       std::to_string(call.bytes), call.dtype,
                       seconds(snapshot.taken_ns - call.end_ns),
                       seconds(call.end_ns - call.start_ns), call.call_site});
    }
  }
  return lay_out(lines);
}

std::string to_json(const Snapshot& snapshot, const HangVerdict& verdict, size_t num_calls) {
  Json json;
  json["verdict"] = {{"kind", name_of(verdict.kind)},
                     {"culprits", verdict.culprits},
                     {"group", verdict.group >= 0 ? Json(verdict.group) : Json()},
                     {"operation", verdict.operation > 0 ? Json(verdict.operation) : Json()},
                     {"sentence", verdict.sentence}};
  json["ranks"] = Json::array();
  for (const Row& row : all_rows(snapshot)) json["ranks"].push_back(json_of(snapshot, row));
  json["groups"] = Json::array();
  for (const GroupSnapshot& group : snapshot.groups) json["groups"].push_back(json_of(group));
  json["other_hosts"] = Json::array();
  for (const OtherHost& host : snapshot.other_hosts) {
    json["other_hosts"].push_back(
        {{"first_rank", host.first_rank}, {"ranks", host.num_ranks}, {"name", host.name}});
  }
  json["calls"] = Json::array();
  for (const RankSnapshot& rank : snapshot.ranks) {
    for (const CompletedCall& call : last_calls(rank, num_calls)) {
      json["calls"].push_back(json_of(rank.rank, call));
    }
  }
  return base::dump(json, 2) + "\n";
}

}  // namespace hanji::shm
