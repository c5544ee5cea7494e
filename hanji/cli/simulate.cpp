#include <fmt/format.h>

#include <iostream>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/cli/collective_options.h"
#include "hanji/cli/pipeline_options.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/report/collective_cost.h"
#include "hanji/report/simulation.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::cli {
namespace {

/// Options that describe a collective are not for pipelines.
void refuse_both(const Verb& verb) {
  for (const char* option : {"routine", "--bytes", "--algorithm", "--bandwidth", "--chunk",
                             "--ranks-per-host", "--reduce", "--root", "--segments"}) {
    if (!verb.was_given(option)) continue;
    throw Error(base::invalid_argument(fmt::format(
        "{} describes a collective, --schedule pipelines; leave one of the two out", option)));
  }
}

std::string simulate_pipelines(const PipelineOptions& options, const CollectiveOptions& common,
                               bool as_json) {
  const double latency =
      common.latency.empty() ? 0 : base::parse_seconds(common.latency).or_throw();
  const auto charts = options.charts(common.ranks, latency);
  if (!options.svg.empty()) {
    write_drawing(options.svg, report::to_svg(charts));
  }
  if (!options.csv.empty()) {
    const std::string text = schedule::to_csv(charts.front().schedule);
    base::throw_if_error(base::write_file_atomic(options.csv, text));
  }
  return as_json ? report::to_json(charts) : report::to_text(charts, options.style());
}

std::string simulate_collective(const CollectiveOptions& options, bool as_json) {
  if (options.bytes.empty()) {
    throw Error(base::invalid_argument(
        "--bytes is required: the size of the largest buffer of one rank, such as 5MB"));
  }
  const cost::Question question = options.question();
  if (const auto algorithm = options.named_algorithm()) {
    const cost::Answer answer = cost::answer(*algorithm, question).or_throw();
    return as_json ? report::timeline_json(answer)
                   : report::timeline_text(answer, question.network);
  }
  if (as_json) return report::to_json(report::cost_on_network(question).or_throw());
  return report::simulation_text(question, output_columns()).or_throw();
}

}  // namespace

void add_simulate(Verb command) {
  const Verb verb = command.add_verb(
      "simulate", "How long a collective takes on a network, or a step on a pipeline");
  auto options = std::make_shared<CollectiveOptions>();
  auto pipeline = std::make_shared<PipelineOptions>();
  auto as_json = std::make_shared<bool>(false);
  options->bandwidth = "1GB/s";
  options->add_to(verb);
  verb.add_option("--bytes", &options->bytes,
                  "of the largest buffer of one rank: 5MB; all shares together where there are any")
      .type_name("SIZE");
  verb.add_option("--algorithm", &options->algorithm, "only this one, message by message")
      .type_name("NAME");
  pipeline->add_to(verb);
  verb.add_flag("--json", as_json.get(), "for programs");
  verb.on_chosen([=] {
    if (!pipeline->schedules.empty()) refuse_both(verb);
    if (pipeline->schedules.empty()) {
      print_text(simulate_collective(*options, *as_json), *as_json);
    } else {
      std::cout << simulate_pipelines(*pipeline, *options, *as_json) << std::flush;
    }
    return 0;
  });
}

}  // namespace hanji::cli
