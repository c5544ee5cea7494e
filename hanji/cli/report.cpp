#include <memory>
#include <optional>

#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/compare_runs.h"
#include "hanji/report/run_report.h"

namespace hanji::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::optional<std::string> steps, against;
  bool as_json = false;

  bool is_comparison() const { return runs.size() > 1 || against; }

  void throw_if_contradictory() const {
    OptionMistakes mistakes;
    if (runs.size() > 2) mistakes.add("two runs are compared; name one or two folders");
    if (runs.size() > 1 && against) {
      mistakes.add("--against compares two parts of one run; name one folder with it");
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

report::RunRecords read(const std::string& folder, const std::optional<std::string>& steps) {
  report::RunRecords run = report::read_run(folder).or_throw();
  if (!steps) return run;
  return report::only_steps(std::move(run), report::parse_steps(*steps).or_throw());
}

std::string compared(const ReportOptions& options) {
  const bool is_one_run = options.against.has_value();
  const report::RunComparison comparison =
      report::compare_runs(read(options.runs.front(), options.steps),
                           read(options.runs.back(), is_one_run ? options.against : options.steps));
  return options.as_json ? report::comparison_json(comparison)
                         : report::comparison_text(comparison, output_columns());
}

std::string of_one_run(const ReportOptions& options) {
  const report::RunRecords run = read(options.runs.front(), options.steps);
  return options.as_json ? report::run_report_json(run) : report::run_report(run, output_columns());
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
  verb.on_chosen([=] {
    options->throw_if_contradictory();
    print_text(options->is_comparison() ? compared(*options) : of_one_run(*options),
               options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
