#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "hanji/base/file.h"
#include "hanji/cli/collective_options.h"
#include "hanji/cli/verbs.h"
#include "hanji/cost/measure.h"
#include "hanji/report/collective_cost.h"
#include "hanji/report/collective_picture.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

struct ExplainOptions {
  CollectiveOptions call;
  std::string svg;
  bool as_json = false;
};

cost::Rates measure(int ranks) {
  const topology::Machine machine = topology::read_machine().or_throw();
  cost::MeasureOptions options;
  options.ranks = ranks;
  options.usable_cores = machine.usable_cores;
  if (!machine.caches.empty()) options.cache_bytes = machine.caches.back().bytes;
  options.rank_cpus = topology::cpus_per_rank(machine, ranks);
  return cost::measure_rates(options).or_throw();
}

report::CollectiveCost price(const CollectiveOptions& options, const cost::Question& question) {
  const bool is_network = !options.bandwidth.empty();
  if (is_network) return report::cost_on_network(question).or_throw();
  if (!options.latency.empty() || !options.reduce.empty()) {
    throw Error(base::invalid_argument(
        "--latency and --reduce describe a network; add --bandwidth, such as 1GB/s"));
  }
  const bool is_priced = question.ranks <= report::kMostRanksInMemory;
  return report::cost_in_memory(question, is_priced ? measure(question.ranks) : cost::Rates())
      .or_throw();
}

std::string explain(const ExplainOptions& options) {
  const cost::Question question = options.call.question();
  const int drawn = std::min(question.ranks, report::kMostDrawnRanks);
  const auto picture =
      report::draw_collective(question.routine, drawn, std::min(question.root, drawn - 1));
  const report::CollectiveCost cost = price(options.call, question);
  if (!options.svg.empty()) {
    base::throw_if_error(base::write_file_atomic(options.svg, report::to_svg(picture)));
  }
  if (options.as_json) {
    return fmt::format("{{\"picture\": {},\n\"cost\": {}}}\n", report::to_json(picture),
                       report::to_json(cost));
  }
  std::string text = report::to_text(picture);
  if (drawn < question.ranks) text += fmt::format("({} of {} ranks)\n", drawn, question.ranks);
  text += "\n" + report::to_text(cost);
  if (options.call.bandwidth.empty()) {
    text += "\nbetween machines: add --bandwidth and --latency, or see `hanji simulate`\n";
  }
  return text;
}

}  // namespace

void add_explain(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand(
      "explain", "What a collective does, what each algorithm costs here, and which is chosen why");
  auto options = std::make_shared<ExplainOptions>();
  options->call.ranks = 4;
  options->call.bytes = "1MB";
  options->call.add_to(*verb);
  verb->add_option("size", options->call.bytes, "of the largest buffer of one rank: 4MiB")
      ->type_name("SIZE")
      ->capture_default_str();
  verb->add_option("--svg", options->svg, "writes the drawing there as well")->type_name("FILE");
  verb->add_flag("--json", options->as_json, "for programs");
  verb->callback([=, &run] {
    run = [=] {
      std::cout << explain(*options) << std::flush;
      return 0;
    };
  });
}

}  // namespace hanji::cli
