#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cost/linear_region.h"
#include "hanji/report/collective_cost.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

using cost::RegionCost;

struct TpOptions {
  std::vector<std::string> layers;
  std::string bandwidth, latency;
  int ranks = 2;
  int64_t rows = 8192;
  int element_bytes = 4;
  bool as_json = false;
};

Links host_links(const TpOptions& options) {
  if (options.ranks > base::kMaxRanksPerHost) {
    throw Error(base::invalid_argument(
        fmt::format("--ranks is {}, a host has at most {}; add --bandwidth of the links between "
                    "hosts, such as 25GB/s",
                    options.ranks, base::kMaxRanksPerHost)));
  }
  HostRates known = host_rates(topology::read_machine().or_throw(), options.ranks);
  return {cost::seconds_on_host(std::move(known.rates), options.ranks), known.source};
}

/// The two layers of an MLP as the smallest GPT-2 has it, between residual streams that every rank has.
const std::vector<std::string> kExample = {"up=768x3072:whole-features",
                                           "down=3072x768:features-whole"};

/// What the letters and the columns of the tables mean.
constexpr const char* kSymbols =
    "X [m x k] times W [k x n] is Y [m x n]; m: --tokens, k: inputs, n: outputs\n"
    "moved: the matrix that crosses the ranks. input: X is gathered, a rank has columns of W; "
    "output: a rank has rows of W, the terms of Y are added up; weights: W is gathered, a rank has "
    "tokens\n"
    "forward, backward: the calls; sent, rank: bytes that each rank sends in both; seconds: of the "
    "calls, without the products\n";

std::string calls_text(const RegionCost& cost, bool backward) {
  std::string text;
  for (const cost::RegionCall& call : cost.calls) {
    if (call.is_backward != backward) continue;
    text += fmt::format("{}{}", text.empty() ? "" : " + ", schedule::name_of(call.routine));
  }
  return text;
}

std::string table_of(const cost::LinearRegion& region, const std::vector<RegionCost>& costs) {
  std::string text = fmt::format("{}: [{} x {}] times [{} x {}]\n", region.name, region.rows,
                                 region.inputs, region.inputs, region.outputs);
  using enum base::TextTable::Align;
  base::TextTable table(
      {{"moved", kLeft}, {"forward", kLeft}, {"backward", kLeft}, {"sent, rank"}, {"seconds"}}, 2);
  for (const RegionCost& cost : costs) {
    table.add({std::string(cost::name_of(cost.moved)), calls_text(cost, false),
               calls_text(cost, true), base::format_bytes(static_cast<int64_t>(cost.sent_bytes)),
               base::format_seconds(cost.seconds)});
  }
  return text + table.text(output_columns()) +
         fmt::format("  chosen: {}\n\n", cost::name_of(costs.front().moved));
}

base::Json json_of(const cost::LinearRegion& region, const std::vector<RegionCost>& costs) {
  base::Json choices = base::Json::array();
  for (const RegionCost& cost : costs) {
    choices.push_back({{"moved", cost::name_of(cost.moved)},
                       {"forward", calls_text(cost, false)},
                       {"backward", calls_text(cost, true)},
                       {"sent_bytes", cost.sent_bytes},
                       {"seconds", cost.seconds}});
  }
  return {{"layer", region.name},
          {"rows", region.rows},
          {"inputs", region.inputs},
          {"outputs", region.outputs},
          {"choices", std::move(choices)}};
}

/// Of what a call may move; larger products are nobody's layer.
constexpr double kMaxMovedBytes = 1e15;

std::vector<cost::LinearRegion> regions_of(const TpOptions& options) {
  OptionMistakes mistakes;
  std::vector<cost::LinearRegion> regions;
  for (const std::string& layer : options.layers.empty() ? kExample : options.layers) {
    const auto region = cost::parse_linear_region(layer, options.rows);
    if (!region.ok()) {
      mistakes.add(region.status());
      continue;
    }
    const auto inputs = static_cast<double>(region->inputs);
    const auto outputs = static_cast<double>(region->outputs);
    const auto rows = static_cast<double>(options.rows);
    const double most = std::max({rows * inputs, rows * outputs, inputs * outputs});
    if (most * options.element_bytes > kMaxMovedBytes) {
      mistakes.add(fmt::format("{} with --tokens {} is above 10^15 bytes; take smaller sizes",
                               layer, options.rows));
    }
    regions.push_back(*region);
  }
  if (const int bytes = options.element_bytes; bytes != 2 && bytes != 4 && bytes != 8) {
    mistakes.add(fmt::format("--element-bytes is {}; set 2, 4 or 8", bytes));
  }
  check_links(options.bandwidth, options.latency, mistakes);
  mistakes.throw_if_any();
  return regions;
}

std::string explain(const TpOptions& options) {
  const std::vector<cost::LinearRegion> regions = regions_of(options);
  const Links links = options.bandwidth.empty()
                          ? host_links(options)
                          : network_links(options.bandwidth, options.latency, options.ranks);
  base::Json json = base::Json::array();
  std::string text = fmt::format("{}, {}, {} bytes per element; forward and backward together\n\n",
                                 base::counted(options.ranks, "rank"),
                                 base::counted(options.rows, "token"), options.element_bytes);
  for (const cost::LinearRegion& region : regions) {
    const auto costs =
        cost::compare_moved(region, options.ranks, options.element_bytes, links.seconds_of);
    json.push_back(json_of(region, costs));
    text += table_of(region, costs);
  }
  if (options.as_json) return base::dump(json, 1) + "\n";
  text += kSymbols;
  if (options.layers.empty()) {
    text +=
        fmt::format("an example, `hanji explain tp {}`; name your layers as NAME=INPUTSxOUTPUTS\n",
                    fmt::join(kExample, " "));
  }
  return text + "prices: " + links.source + "\n";
}

}  // namespace

void add_explain_tp(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "tp", "What moves where ranks share a linear layer: its input, its output or its weights");
  auto options = std::make_shared<TpOptions>();
  verb.add_option("layers", &options->layers,
                  "NAME=INPUTSxOUTPUTS; with :FROM-TO, each whole, tokens or features, where its "
                  "ends are fixed: qkv=4096x6144:tokens-features; none: an MLP as an example")
      .type_name("LAYER");
  verb.add_option("--ranks", &options->ranks, "that share the layer")
      .type_name("N")
      .range(2, 1024)
      .show_default();
  verb.add_option("--tokens", &options->rows, "rows of a micro-batch: samples times tokens")
      .type_name("N")
      .range(1, 1 << 30)
      .show_default();
  verb.add_option("--element-bytes", &options->element_bytes, "2 for bf16, 4 for float32")
      .range(1, 8)
      .show_default();
  add_link_options(verb, options->bandwidth, options->latency);
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
