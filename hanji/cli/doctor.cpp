#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "hanji/cli/doctor/environment.h"
#include "hanji/cli/doctor/gather.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/environment.h"

namespace hanji::cli {
namespace {

/// A half-set launcher makes every command refuse; say so here, where one looks.
Findings check_identity() {
  const auto identity = launch::detect();
  if (!identity.ok()) {
    return {{"launchers", "started by", identity.status().message(), Verdict::kBroken,
             "start from a shell without these variables"}};
  }
  Finding finding{"launchers", "started by", "nobody: a world of one"};
  if (identity->source != launch::Source::kAlone) {
    finding.value = fmt::format("{}, rank {} of {}", launch::name_of(identity->source),
                                identity->rank, identity->world_size);
    if (!identity->nesting.empty()) finding.value += "; " + identity->nesting;
    finding.verdict = Verdict::kNote;
    finding.advice = "programs started here join that job; open another shell for one of their own";
  }
  return {finding};
}

std::string path_in(const std::vector<base::NamedValue>& environment) {
  const auto found = std::ranges::find(environment, "PATH", &base::NamedValue::name);
  return found == environment.end() ? "" : found->value;
}

Findings examine(const std::string& folder) {
  Findings all;
  const auto add = [&](Findings part) { all.insert(all.end(), part.begin(), part.end()); };
  const Findings ranks = check_ranks();  // before libtorch has threads
  add(find_versions());
  const auto machine = topology::read_machine().or_throw();
  const auto environment = base::read_environment();
  add(find_cores(machine));
  add(measure_speed(machine));
  add(measure_gpu());
  add(ranks);
  add(check_limits());
  add(measure_disk(folder));
  add(check_identity());
  add(find_programs(path_in(environment)));
  add(judge_environment(environment, machine.usable_cores));
  return all;
}

}  // namespace

void add_doctor(Verb command) {
  const Verb verb = command.add_verb("doctor", "Check this machine and suggest fixes");
  auto folder = std::make_shared<std::string>(".");
  auto as_json = std::make_shared<bool>(false);
  verb.add_option("--folder", folder.get(), "where runs are written")
      .type_name("DIR")
      .show_default();
  verb.add_flag("--json", as_json.get(), "the findings as JSON");
  verb.on_chosen([=] {
    const Findings findings = examine(*folder);
    std::cout << (*as_json ? to_json(findings) : to_text(findings, output_columns())) << std::flush;
    return exit_code_of(findings);
  });
}

}  // namespace hanji::cli
