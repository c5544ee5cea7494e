#include "hanji/schedule/pipeline_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "hanji/base/text.h"
#include "hanji/schedule/internal/stage_messages.h"
#include "hanji/schedule/pipeline_check.h"

namespace hanji::schedule {
namespace {

constexpr size_t kMaxMistakes = 20;
constexpr int64_t kMaxListedPasses = 100;  // that are missing
constexpr int64_t kMaxStages = 4096;
constexpr int64_t kMaxMicroBatches = int64_t{1} << 16;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// A number below `limit` that opens the text, and is cut from it.
std::optional<int64_t> take_number(std::string_view& text, int64_t limit) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value >= limit) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<ActionKind> kind_of(char letter) {
  switch (letter) {
    case 'F': return ActionKind::kForward;
    case 'B': return ActionKind::kBackward;
    case 'I': return ActionKind::kBackwardInput;
    case 'W': return ActionKind::kBackwardWeight;
    default: return std::nullopt;
  }
}

std::optional<Action> parse_code(std::string_view code) {
  const auto stage = take_number(code, kMaxStages);
  const auto kind = !stage || code.empty() ? std::nullopt : kind_of(code.front());
  if (!kind) return std::nullopt;
  code.remove_prefix(1);
  const auto micro_batch = take_number(code, kMaxMicroBatches);
  if (!micro_batch || !code.empty()) return std::nullopt;
  return Action{*kind, static_cast<int>(*stage), *micro_batch};
}

using Mistakes = std::vector<std::string>;

Status status_of(const Mistakes& mistakes) {
  if (mistakes.empty()) return {};
  const size_t shown = std::min(mistakes.size(), kMaxMistakes);
  std::string text = fmt::format("{}", fmt::join(mistakes.begin(), mistakes.begin() + shown, "\n"));
  if (shown < mistakes.size()) text += fmt::format("\nand {} more", mistakes.size() - shown);
  return base::corrupt(std::move(text));
}

ActionList read_line(std::string_view line, int rank, Mistakes& mistakes) {
  constexpr std::string_view kOverlap = ")OVERLAP_F_B";
  ActionList actions;
  const auto cells = base::split(line, ',');
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string_view cell = trimmed(cells[i]);
    if (cell.empty()) continue;
    if (cell.front() == '(' && cell.ends_with(kOverlap)) {
      cell = cell.substr(1, cell.size() - 1 - kOverlap.size());
    }
    for (const std::string_view code : base::split(cell, ';')) {
      if (const auto action = parse_code(trimmed(code))) {
        actions.push_back(*action);
        continue;
      }
      mistakes.push_back(fmt::format(
          "line {}, cell {}: '{}' is no computation; write stage, one of F B I W and micro-batch, "
          "such as 0F2 (messages are added)",
          rank + 1, i + 1, code));
    }
  }
  return actions;
}

/// The ranks of stages 0, 1, ...; a stage that no line has is a mistake.
std::vector<int> placement_of(const std::vector<ActionList>& ranks, Mistakes& mistakes) {
  std::map<int, int> rank_of;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Action& action : ranks[rank]) {
      const auto [found, is_new] = rank_of.emplace(action.stage, static_cast<int>(rank));
      if (is_new || found->second == static_cast<int>(rank)) continue;
      mistakes.push_back(fmt::format("line {}: stage {} is on line {}; a stage has one rank",
                                     rank + 1, action.stage, found->second + 1));
      found->second = static_cast<int>(rank);  // said once
    }
  }
  std::vector<int> placement;
  for (const auto& [stage, rank] : rank_of) {
    while (static_cast<int>(placement.size()) < stage) {
      mistakes.push_back(fmt::format("no line has stage {}", placement.size()));
      placement.push_back(-1);
    }
    placement.push_back(rank);
  }
  return placement;
}

}  // namespace

std::string to_code(const Action& action) {
  const auto with = [&](std::string_view name) {
    return fmt::format("{}{}{}", action.stage, name, action.micro_batch);
  };
  switch (action.kind) {
    case ActionKind::kForward: return with("F");
    case ActionKind::kBackward: return with("B");
    case ActionKind::kBackwardInput: return with("I");
    case ActionKind::kBackwardWeight: return with("W");
    case ActionKind::kSend: return with(action.peer > action.stage ? "SEND_F" : "SEND_B");
    case ActionKind::kReceive: return with(action.peer < action.stage ? "RECV_F" : "RECV_B");
    case ActionKind::kUnshard: return fmt::format("{}UNSHARD", action.stage);
    case ActionKind::kReshard: return fmt::format("{}RESHARD", action.stage);
    case ActionKind::kReduce: return fmt::format("{}REDUCE_GRAD", action.stage);
  }
  return "";
}

std::string to_csv(const PipelineSchedule& schedule) {
  std::string text;
  for (const ActionList& actions : schedule.ranks) {
    std::string line;
    for (const Action& action : actions) {
      if (is_compute(action.kind)) line += (line.empty() ? "" : ",") + to_code(action);
    }
    text += line + "\n";
  }
  return text;
}

Result<PipelineSchedule> pipeline_from_csv(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  PipelineSchedule schedule;
  Mistakes mistakes;
  for (const std::string_view line : base::split(text, '\n')) {
    const int rank = static_cast<int>(schedule.ranks.size());
    schedule.ranks.push_back(read_line(line, rank, mistakes));
    if (schedule.ranks.back().empty()) {
      mistakes.push_back(fmt::format("line {}: rank {} computes nothing", rank + 1, rank));
    }
  }
  HANJI_RETURN_IF_ERROR(status_of(mistakes));
  schedule.rank_of_stage = placement_of(schedule.ranks, mistakes);
  HANJI_RETURN_IF_ERROR(status_of(mistakes));
  int64_t last = 0;
  int64_t computations = 0;
  for (const ActionList& actions : schedule.ranks) {
    computations += static_cast<int64_t>(actions.size());
    for (const Action& action : actions) last = std::max(last, action.micro_batch);
  }
  const int ranks = static_cast<int>(schedule.ranks.size());
  schedule.shape = {ranks, last + 1, (schedule.num_stages() + ranks - 1) / ranks};
  if (schedule.num_stages() * (last + 1) > computations + kMaxListedPasses) {
    return base::corrupt(
        fmt::format("{} stages times {} micro-batches take two computations each; the file has {}",
                    schedule.num_stages(), last + 1, computations));
  }
  mistakes = incomplete_passes(schedule);
  for (int rank = 0; rank < ranks; ++rank) {
    const Status order = check(schedule.ranks[rank]);
    if (!order.ok()) mistakes.push_back(fmt::format("line {}: {}", rank + 1, order.message()));
  }
  HANJI_RETURN_IF_ERROR(status_of(mistakes));
  internal::add_messages(schedule);
  return schedule;
}

}  // namespace hanji::schedule
