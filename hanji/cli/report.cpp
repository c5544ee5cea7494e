#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/report/compare_runs.h"
#include "hanji/report/operations.h"
#include "hanji/report/report_page.h"
#include "hanji/report/run_report.h"
#include "hanji/report/scaling.h"

namespace hanji::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::optional<std::string> steps, against, svg, html;
  std::optional<int64_t> operations;  ///< The rank whose operations are shown.
  bool as_json = false, is_scaling = false;

  bool is_comparison() const { return runs.size() > 1 || against; }

  void throw_if_contradictory() const {
    OptionMistakes mistakes;
    if (runs.size() > 2 && !is_scaling) {
      mistakes.add(
          "two runs are compared; name one or two folders, or add --scaling for runs of one job on "
          "1, 2, ... ranks");
    }
    if (svg && !is_scaling) mistakes.add("--svg draws how a job scales; it needs --scaling");
    if ((runs.size() > 1 || is_scaling) && against) {
      mistakes.add("--against compares two parts of one run; name one folder with it");
    }
    if (html && (is_comparison() || is_scaling)) {
      mistakes.add("--html writes the report of one run; name one folder with it");
    }
    if (operations && (is_comparison() || is_scaling || as_json || html)) {
      mistakes.add("--operations prints those of a rank of one run; give it alone");
    }
    if (against && !steps) {
      mistakes.add("--against needs --steps, the part that it is compared with");
    }
    for (const auto& range : {steps, against}) {
      if (!range) continue;
      const auto parsed = report::parse_steps(*range);
      if (!parsed.ok()) mistakes.add(parsed.status());
    }
    mistakes.throw_if_any();
  }
};

report::RunRecords some_of(report::RunRecords run, const std::optional<std::string>& steps) {
  if (!steps) return run;
  return report::only_steps(std::move(run), report::parse_steps(*steps).or_throw());
}

std::string compared(const ReportOptions& options) {
  const auto read = [](const std::string& folder) { return report::read_run(folder).or_throw(); };
  const bool is_one_run = options.against.has_value();
  const report::RunComparison comparison = report::compare_runs(
      some_of(read(options.runs.front()), options.steps),
      some_of(read(options.runs.back()), is_one_run ? options.against : options.steps));
  return options.as_json ? report::comparison_json(comparison)
                         : report::comparison_text(comparison, output_columns());
}

std::string scaled(const ReportOptions& options) {
  std::vector<report::RunRecords> runs;
  OptionMistakes mistakes;
  for (const std::string& folder : options.runs) {
    auto run = report::read_run(folder);
    if (run.ok()) {
      runs.push_back(*std::move(run));
    } else {
      mistakes.add(run.status());
    }
  }
  mistakes.throw_if_any();
  if (options.steps) {
    const report::StepRange range = report::parse_steps(*options.steps).or_throw();
    for (report::RunRecords& run : runs) run = report::only_steps(std::move(run), range);
  }
  const report::ScalingStudy study = report::study_scaling(runs).or_throw();
  if (options.svg) write_drawing(*options.svg, report::scaling_svg(study));
  return options.as_json ? report::scaling_json(study)
                         : report::scaling_text(study, output_columns());
}

std::string of_one_run(const ReportOptions& options) {
  const report::RunRecords run =
      some_of(report::read_whole_run(options.runs.front()).or_throw(), options.steps);
  const auto timelines = options.as_json || options.html ? report::read_timelines(run)
                                                         : std::vector<report::StepTimeline>{};
  if (options.html) write_page(*options.html, report::report_page(run, timelines));
  return options.as_json ? report::run_report_json(run, timelines)
                         : report::run_report(run, output_columns());
}

/// What a rank of the run did in its profiled steps.
std::string operations_of(const std::string& folder, int64_t rank) {
  const auto records = report::read_operations(folder).or_throw();
  const auto found = std::ranges::find(records, rank, &report::OperationsRecord::rank);
  if (found != records.end()) return report::operations_text(*found, 20, output_columns());
  throw Error(base::not_found(fmt::format(
      "{}: operations of rank {} were not recorded; train with --profile 10-12", folder, rank)));
}

}  // namespace

void add_report(Verb command) {
  const Verb verb = command.add_verb(
      "report", "Say where the time of a run goes, whose fault it is, and what mending saves");
  auto options = std::make_shared<ReportOptions>();
  verb.add_option("run", &options->runs,
                  "folder of the run; of two runs: what changed between them")
      .type_name("DIR")
      .required();
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.add_option("--steps", &options->steps, "these alone, as 101-200").type_name("M-N");
  verb.add_option("--against", &options->against,
                  "what changed from --steps to these steps of the same run")
      .type_name("M-N");
  verb.add_flag("--scaling", &options->is_scaling,
                "how one job scales, from runs on 1, 2, ... ranks");
  verb.add_option("--svg", &options->svg, "with --scaling: the speed-up as an SVG")
      .type_name("FILE");
  verb.add_option("--html", &options->html, "write the report of one run as a page, too")
      .type_name("FILE");
  verb.add_option("--operations", &options->operations,
                  "operations of this rank in the steps of train.profile")
      .type_name("RANK");
  verb.on_chosen([=] {
    options->throw_if_contradictory();
    print_text(options->operations        ? operations_of(options->runs[0], *options->operations)
               : options->is_scaling      ? scaled(*options)
               : options->is_comparison() ? compared(*options)
                                          : of_one_run(*options),
               options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
