#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cli/collective_options.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/plan/device_spec.h"
#include "hanji/report/collective_cost.h"
#include "hanji/report/collective_picture.h"
#include "hanji/topology/machine.h"
#include "hanji/topology/rank_order.h"
#include "hanji/topology/read_graph.h"

namespace hanji::cli {
namespace {

struct ExplainOptions {
  CollectiveOptions call;
  std::string topology;
  std::string svg;
  bool as_json = false;
};

// `source` is told where the price comes from.
report::CollectiveCost price(const CollectiveOptions& options, const cost::Question& question,
                             std::string& source) {
  const bool is_barrier = question.routine == schedule::Routine::kBarrier;
  const bool has_network = !options.bandwidth.empty() ||
                           (is_barrier && (!options.latency.empty() || !options.reduce.empty()));
  if (has_network) return report::cost_on_network(question).or_throw();
  if (!options.latency.empty() || !options.reduce.empty()) {
    throw Error(base::invalid_argument(
        "--latency and --reduce describe a network; add --bandwidth, such as 1GB/s"));
  }
  base::throw_if_error(report::check_in_memory(question));
  const HostRates known =
      host_rates(topology::read_machine().or_throw(), report::priced_ranks(question));
  source = known.source;
  return report::cost_in_memory(question, known.rates).or_throw();
}

// The order of ranks in rings and trees, and where it holds.
struct Order {
  std::string where;  // empty: nobody can say
  topology::RankOrder ranks;
};

Order order_on(const std::string& file, int ranks) {
  const auto text = base::read_file(file).or_throw();
  const auto hosts = topology::graphs_from_json(text);
  if (!hosts.ok()) throw Error(hosts.status().at(file));
  return {file, topology::order_ranks(topology::rank_paths(*hosts, ranks).or_throw())};
}

// On this machine; if there are more ranks than cores, any core runs any rank.
Order order_here(int ranks) {
  const topology::Graph graph = topology::read_graph().or_throw();
  const auto paths = topology::rank_paths({graph}, ranks);
  if (paths.ok()) return {"this machine", topology::order_ranks(*paths)};
  const std::vector<topology::RankPath> alike(static_cast<size_t>(ranks));
  return {"this machine, where ranks outnumber cores", topology::order_ranks(alike)};
}

// A barrier and a send have neither rings nor trees.
bool has_order(const cost::Question& question) {
  return !schedule::message_algorithms(question.routine).empty();
}

Order order_of(const ExplainOptions& options, const cost::Question& question) {
  const int ranks = question.ranks;
  if (!has_order(question)) {
    if (options.topology.empty()) return {};
    throw Error(base::invalid_argument(
        fmt::format("{} has no order of ranks; leave out --topology", name_of(question.routine))));
  }
  if (!options.topology.empty()) return order_on(options.topology, ranks);
  const bool is_network = !options.call.bandwidth.empty();
  return is_network ? Order{} : order_here(ranks);
}

std::string explain(const ExplainOptions& options) {
  const cost::Question question = options.call.question();
  const int drawn = std::min(question.ranks, report::kMaxDrawnRanks);
  const auto picture =
      report::draw_collective(question.routine, drawn, std::min(question.root, drawn - 1));
  std::string source;
  const report::CollectiveCost cost = price(options.call, question, source);
  const Order order = order_of(options, question);
  if (!options.svg.empty()) {
    write_drawing(options.svg, report::to_svg(picture));
  }
  if (options.as_json) {
    return fmt::format("{{\"picture\": {},\n\"cost\": {},\n\"order\": [{}],\n\"prices\": {}}}\n",
                       report::to_json(picture), report::to_json(cost),
                       fmt::join(order.ranks.ranks, ", "), base::dump(source));
  }
  std::string text =
      report::to_text(picture) + base::wrap(report::legend_of(picture) + "\n", output_columns());
  if (drawn < question.ranks)
    text += fmt::format("({} of {})\n", drawn, base::counted(question.ranks, "rank"));
  text += "\n" + report::to_text(cost, output_columns());
  if (!source.empty()) text += "\nprices: " + source + "\n";
  if (!order.where.empty()) {
    text +=
        fmt::format("\nrings and trees of messages on {}:\n{}", order.where, to_text(order.ranks));
  }
  if (question.routine == schedule::Routine::kBarrier) {
    text +=
        "\nbetween hosts: no messages of its own; ranks have met when they have compared their "
        "calls, as before every call\n";
  } else if (options.call.bandwidth.empty()) {
    text += "\nbetween machines: add --bandwidth and --latency, or see `hanji simulate`\n";
  }
  return text;
}

/// Besides routines: what a misspelled word may mean.
std::vector<std::string> explained_words() {
  std::vector<std::string> words{"strategies", "parallel", "tp", "axial", "cp", "transpose"};
  std::ranges::copy_if(plan::device_words(), std::back_inserter(words), [](const std::string& one) {
    return one.find('-') == std::string::npos;  // h100 stands for h100-80
  });
  return words;
}

}  // namespace

void add_explain(Verb command) {
  const Verb verb = command.add_verb(
      "explain", "What a collective does, what each algorithm costs here, and which is chosen why");
  auto options = std::make_shared<ExplainOptions>();
  options->call.ranks = 4;
  options->call.explains = true;
  options->call.verbs = explained_words();
  options->call.add_to(verb);
  verb.add_option("size", &options->call.bytes,
                  fmt::format("of the largest buffer of one rank: 4MiB; default: {}", kDefaultSize))
      .type_name("SIZE");
  verb.add_option("--svg", &options->svg, "writes the drawing there as well").type_name("FILE");
  verb.add_option("--topology", &options->topology,
                  "also the order of ranks in rings and trees there; of `hanji topo --json`, or a "
                  "list of several")
      .type_name("FILE");
  verb.add_flag("--json", &options->as_json, "for programs");
  add_explain_strategies(verb);
  add_explain_parallel(verb);
  add_explain_tp(verb);
  add_explain_axial(verb);
  add_explain_cp(verb);
  add_explain_transpose(verb);
  add_explain_device(verb);
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
