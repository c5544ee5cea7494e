#include <memory>

#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/run_report.h"

namespace hanji::cli {

void add_report(Verb command) {
  const Verb verb = command.add_verb(
      "report", "Say where the time of a run goes, whose fault it is, and what mending saves");
  auto folder = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  verb.add_option("run", folder.get(), "folder of the run").type_name("DIR").required();
  verb.add_flag("--json", as_json.get(), "for programs");
  verb.on_chosen([=] {
    const report::RunRecords run = report::read_run(*folder).or_throw();
    print_text(*as_json ? report::run_report_json(run) : report::run_report(run, output_columns()),
               *as_json);
    return 0;
  });
}

}  // namespace hanji::cli
