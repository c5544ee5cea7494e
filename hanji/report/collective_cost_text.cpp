#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

// "+1.2 ms of latency" for every term that differs.
std::string difference(const cost::Terms& winner, const cost::Terms& loser) {
  std::string text;
  const auto add = [&](double more, const char* what) {
    if (std::abs(more) < 1e-3 * loser.seconds()) return;
    text += fmt::format("{}{}{} of {}", text.empty() ? "" : ", ", more < 0 ? "-" : "+",
                        exact_seconds(std::abs(more)), what);
  };
  add(loser.latency - winner.latency, "latency");
  add(loser.bandwidth - winner.bandwidth, "bandwidth");
  add(loser.reduction - winner.reduction, "reduction");
  return text;
}

std::string sizes_text(const CollectiveCost& cost) {
  if (cost.sizes.empty()) return "";
  std::string text = cost.chosen.empty() ? "\nthe fastest by size" : "\ntaken by size";
  if (!cost.sizes_where.empty()) text += " " + cost.sizes_where;
  text += ":\n";
  for (size_t i = 0; i < cost.sizes.size(); ++i) {
    const bool is_last = i + 1 == cost.sizes.size();
    const std::string until =
        is_last ? "on" : "to " + base::format_bytes(cost.sizes[i + 1].from_bytes);
    text += fmt::format("  from {:>8} {:<12} {}\n", base::format_bytes(cost.sizes[i].from_bytes),
                        until, cost.sizes[i].algorithm);
  }
  for (const CollectiveCost::LeftOut& one : cost.left_out) {
    const bool has_row = std::ranges::any_of(
        cost.rows, [&](const auto& row) { return row.algorithm == one.algorithm; });
    text += fmt::format(
        "not compared{}: {} in {} segments has {}, and at most {} are compared; take fewer "
        "ranks, or simulate --algorithm {} alone\n",
        has_row ? " by size" : "", one.algorithm, cost::kMaxSegments,
        base::counted(one.steps, "step"), cost::kMaxComparedSteps, one.algorithm);
  }
  return text;
}

// "direct: update in place 1.2 ms, meet 3 us" for each row whose price is made of parts.
std::string parts_text(const CollectiveCost& cost) {
  std::string text;
  for (const CollectiveRow& row : cost.rows) {
    if (row.parts.empty()) continue;
    std::string line;
    for (const cost::Part& part : row.parts) {
      line +=
          fmt::format("{}{} {}", line.empty() ? "" : ", ", part.name, exact_seconds(part.seconds));
    }
    text += fmt::format("  {:<8} {}\n", row.algorithm + ":", line);
  }
  return text.empty() ? "" : "\nmade of:\n" + text;
}

bool has_formulas(const CollectiveCost& cost) {
  return std::ranges::any_of(cost.rows, [](const auto& row) { return !row.formula.empty(); });
}

// "all_reduce of 5.00 MB, 8 ranks, in shared memory"; a barrier has no size.
std::string title_of(const CollectiveCost& cost) {
  const std::string size = cost.bytes > 0 ? " of " + base::format_bytes(cost.bytes) : "";
  return fmt::format("{}{}, {}, {}", name_of(cost.routine), size, base::counted(cost.ranks, "rank"),
                     cost.where);
}

}  // namespace

std::string symbols_of(const CollectiveCost& cost) {
  const bool sends = has_formulas(cost);
  std::string text = fmt::format(
      "time: latency + bandwidth + reduction, of one call\n"
      "latency: {}, as many one after another as rounds says\n"
      "bandwidth: moving bytes; reduction: combining elements\n"
      "steps: copies, sums{} of the rank that has most; moved: bytes that the busiest rank {}\n",
      sends ? "until a message begins to flow" : "until all ranks have met",
      sends ? " and messages" : " and meetings", sends ? "sends" : "reads and writes");
  if (!sends) return text;
  const auto holds = [&](char letter) {
    return std::ranges::any_of(cost.rows, [&](const CollectiveRow& row) {
      return row.formula.find(letter) != std::string::npos;
    });
  };
  text += "a: latency of a message, b: seconds per byte, S: bytes of the whole buffer";
  if (holds('p')) text += ", p: ranks";
  if (holds('k')) text += ", k: segments";
  if (holds('h')) text += ", l: ranks of a host, h: hosts";
  return text + "\n";
}

std::string why(const CollectiveCost& cost) {
  if (cost.rows.size() < 2) return "";
  const CollectiveRow& winner = cost.rows[0];
  const CollectiveRow& second = cost.rows[1];
  const std::string terms = difference(winner.terms, second.terms);
  const double lost = second.terms.seconds() - winner.terms.seconds();
  if (lost <= 1e-9 * winner.terms.seconds()) {
    return fmt::format("{} takes as long as {}", second.algorithm, winner.algorithm);
  }
  return fmt::format("{} loses against {} by {}{}{}", second.algorithm, winner.algorithm,
                     exact_seconds(lost), terms.empty() ? "" : ": ", terms);
}

std::string to_text(const CollectiveCost& cost, int columns) {
  std::string text = title_of(cost) + "\n\n";
  using enum base::TextTable::Align;
  base::TextTable table({{"algorithm", kLeft},
                         {"time"},
                         {"rounds"},
                         {"latency"},
                         {"bandwidth"},
                         {"reduction"},
                         {"steps"},
                         {"moved"},
                         {has_formulas(cost) ? "for 2^n ranks" : "", kLeft}});
  for (const CollectiveRow& row : cost.rows) {
    table.add({label_of(row), exact_seconds(row.terms.seconds()), std::to_string(row.terms.rounds),
               exact_seconds(row.terms.latency), exact_seconds(row.terms.bandwidth),
               exact_seconds(row.terms.reduction), std::to_string(row.steps),
               base::format_bytes(row.moved_bytes), row.formula});
  }
  text += table.text(columns) + "\n" + symbols_of(cost) + parts_text(cost);
  const std::string reason = why(cost);
  if (!reason.empty()) text += "\n" + reason + "\n";
  if (!cost.chosen.empty()) text += "\n" + cost.chosen + "\n";
  return text + sizes_text(cost);
}

std::string to_json(const CollectiveCost& cost) {
  base::Json json = {{"routine", name_of(cost.routine)},
                     {"bytes", cost.bytes},
                     {"ranks", cost.ranks},
                     {"where", cost.where},
                     {"algorithms", base::Json::array()}};
  for (const CollectiveRow& row : cost.rows) {
    base::Json parts = base::Json::object();
    for (const cost::Part& part : row.parts) parts[part.name] = part.seconds;
    json["algorithms"].push_back({{"name", row.algorithm},
                                  {"segments", row.segments},
                                  {"seconds", row.terms.seconds()},
                                  {"latency_seconds", row.terms.latency},
                                  {"bandwidth_seconds", row.terms.bandwidth},
                                  {"reduction_seconds", row.terms.reduction},
                                  {"rounds", row.terms.rounds},
                                  {"steps", row.steps},
                                  {"moved_bytes", row.moved_bytes},
                                  {"formula", row.formula},
                                  {"parts", std::move(parts)}});
  }
  json["left_out"] = base::Json::array();
  for (const CollectiveCost::LeftOut& one : cost.left_out) {
    json["left_out"].push_back({{"name", one.algorithm}, {"steps", one.steps}});
  }
  json["why"] = why(cost);
  json["chosen"] = cost.chosen;
  json["sizes"] = base::Json::array();
  for (const FastestFrom& one : cost.sizes) {
    json["sizes"].push_back({{"from_bytes", one.from_bytes}, {"algorithm", one.algorithm}});
  }
  json["sizes_where"] = cost.sizes_where.empty() ? cost.where : cost.sizes_where;
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
