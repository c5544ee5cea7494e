#include "hanji/report/context_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

using layout::ContextAttention;
using layout::ContextWay;
using plan::ContextCost;

std::string_view name_of_way(ContextWay way) {
  return layout::kContextWayNames[static_cast<size_t>(way)];
}

int64_t num_calls(const ContextAttention& attention, ContextWay way, bool is_backward) {
  int64_t calls = 0;
  for (const auto& one : context_calls(attention, way)) calls += one.is_backward == is_backward;
  return calls;
}

std::string counted_calls(const ContextAttention& attention, ContextWay way) {
  return fmt::format("{} + {}", num_calls(attention, way, false), num_calls(attention, way, true));
}

std::string heads_of(const ContextAttention& attention) {
  const int64_t repeats = layout::context_repeats(attention);
  std::string text = fmt::format("heads {}", fmt::join(layout::context_heads(attention), " "));
  if (repeats > 1) text += fmt::format("; each head of keys and values {} times", repeats);
  return text;
}

/// "tokens 0-63 and 192-255".
std::string tokens_of(const ContextAttention& attention, int rank, ContextWay way) {
  std::vector<std::string> ranges;
  for (const auto one : context_tokens(attention.tokens, rank, attention.ranks, way)) {
    ranges.push_back(fmt::format("{}-{}", one.begin, one.end - 1));
  }
  return fmt::format("tokens {}", fmt::join(ranges, " and "));
}

std::string share_of(const ContextAttention& attention, ContextWay way) {
  const std::string first =
      fmt::format("  {:<9}rank 0 has {}", name_of_way(way), tokens_of(attention, 0, way));
  if (way == ContextWay::kRing) return first + ", all heads\n";
  return fmt::format("{}; by rank, {}\n", first, heads_of(attention));
}

}  // namespace

std::string context_table(const ContextAttention& attention, int64_t samples,
                          const std::vector<ContextCost>& costs, int columns) {
  std::string text = fmt::format(
      "attention of {}, {} on {} of keys and values, {} wide, {} sample{} on {}"
      "\nforward and backward of one layer; bytes that all ranks send together\n\n",
      base::counted(attention.tokens, "token"), base::counted(attention.heads, "head"),
      attention.kv_heads, attention.width, samples, samples == 1 ? "" : "s",
      base::counted(attention.ranks, "rank"));
  base::TextTable table({{"way", base::TextTable::Align::kLeft},
                         {"all_to_alls"},
                         {"forward"},
                         {"backward"},
                         {"sent, rank"},
                         {"transfer"},
                         {"attention"},
                         {"together"}},
                        2);
  for (const ContextCost& cost : costs) {
    table.add({std::string(name_of_way(cost.way)), counted_calls(attention, cost.way),
               base::format_bytes(cost.forward_bytes), base::format_bytes(cost.backward_bytes),
               base::format_bytes((cost.forward_bytes + cost.backward_bytes) / attention.ranks),
               base::format_seconds(cost.transfer_seconds),
               base::format_seconds(cost.attention_seconds), base::format_seconds(cost.seconds())});
  }
  text += table.text(columns) + "\n" +
          base::wrap(
              "  all_to_alls: forward + backward; forward, backward: bytes of all ranks; "
              "sent, rank: of one, in both; transfer: seconds of the calls; attention: an "
              "estimate of its products, on the rank that multiplies most\n",
              columns) +
          "\n";
  for (const ContextCost& cost : costs) text += share_of(attention, cost.way);
  if (costs.size() == 2) {
    return text + fmt::format("  chosen: {}\n", name_of_way(costs.front().way));
  }
  if (costs.empty()) {
    return text + "  neither: ulysses needs a head for each rank, a ring two tokens\n";
  }
  return text + fmt::format("  chosen: {}; {}\n", name_of_way(costs.front().way),
                            costs.front().way == ContextWay::kRing
                                ? "ulysses needs a head for each rank"
                                : "a ring needs two tokens for each rank");
}

std::string context_json(const ContextAttention& attention, int64_t samples,
                         const std::vector<ContextCost>& costs) {
  base::Json ways = base::Json::array();
  for (const ContextCost& cost : costs) {
    ways.push_back({{"way", name_of_way(cost.way)},
                    {"forward_calls", num_calls(attention, cost.way, false)},
                    {"backward_calls", num_calls(attention, cost.way, true)},
                    {"forward_bytes", cost.forward_bytes},
                    {"backward_bytes", cost.backward_bytes},
                    {"transfer_seconds", cost.transfer_seconds},
                    {"attention_seconds", cost.attention_seconds}});
  }
  const base::Json json = {{"tokens", attention.tokens},     {"heads", attention.heads},
                           {"kv_heads", attention.kv_heads}, {"head_width", attention.width},
                           {"ranks", attention.ranks},       {"samples", samples},
                           {"ways", std::move(ways)}};
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
