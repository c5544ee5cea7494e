#include <iostream>

#include "hanji/base/file.h"
#include "hanji/base/limits.h"
#include "hanji/cli/capacity_options.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/timing_notice.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/plan/mesh_choices.h"
#include "hanji/plan/schema.h"
#include "hanji/train/plan_meshes.h"
#include "hanji/train/prepare.h"

namespace hanji::cli {
namespace {

// The page docs/configuration.md is this command's output.
constexpr const char* kKeysHeading =
    "# Configuration\n\n"
    "Every key can be set in a TOML file (`--config job.toml`, one table per section) or on the\n"
    "command line (`--set train.steps=60`, `--mesh dp=2,tp=2`), which overrides the file. "
    "`--print-config`\n"
    "shows each value and its origin. This page is the output of `hanji plan --keys`.\n"
    "\n";

int show_pairs(const CapacityOptions& capacity, const JobOptions& job, Verb verb, bool as_json) {
  const plan::PairCapacity pairs = capacity.pair_capacity(verb, job.assignments()).or_throw();
  print_text(as_json ? plan::to_json(pairs) : plan::describe(pairs), as_json);
  return 0;
}

int show_capacity(const CapacityOptions& capacity, const JobOptions& job, Verb verb, bool as_json) {
  const plan::CapacityQuery query = capacity.query(verb, job.assignments()).or_throw();
  if (capacity.meshes()) {
    const auto table = plan::choose_meshes(query, capacity.only_mesh(verb).or_throw()).or_throw();
    std::cout << (as_json ? plan::to_json(table) : plan::describe(table, output_columns()))
              << std::flush;  // flags to paste stay whole
    return 0;
  }
  if (!capacity.svg().empty()) {
    write_drawing(capacity.svg(), plan::to_svg(query));
  }
  print_text(as_json ? plan::to_json(query) : plan::describe(query), as_json);
  return 0;
}

/// Of the job's own ranks, on this machine.
int show_meshes(const JobOptions& job, Verb verb, bool as_json) {
  if (verb.was_given("--mesh") || verb.was_given("--hosts")) {
    base::throw_if_error(base::invalid_argument(
        "--meshes plans every mesh of a job on this host; leave out --mesh and --hosts"));
  }
  const auto load = [&](const std::optional<plan::MeshChoice>& choice) {
    plan::ConfigSources sources;
    if (!choice) return job.load(std::move(sources));
    sources.mesh = to_string(choice->mesh);
    for (const std::string& one : assignments_of(*choice)) {
      sources.overrides.push_back({one, "--meshes"});
    }
    return job.load(std::move(sources));
  };
  const auto tell = [](const std::string& flags) {
    std::cerr << "hanji: planning " << flags << "\n";
  };
  const plan::MeshTable table = train::plan_meshes(load, tell).or_throw();
  std::cout << (as_json ? plan::to_json(table) : plan::describe(table, output_columns()))
            << std::flush;  // flags to paste stay whole
  return 0;
}

/// Of ranks on hosts that need not be there: a batch that nobody chose has a sample for each.
plan::LoadedConfig load_for_hosts(const JobOptions& job) {
  plan::LoadedConfig loaded = job.load();
  const plan::Config& config = loaded.config;
  const int64_t least = config.run.ranks * config.train.grain;
  if (loaded.origins.contains("train.global_batch") || config.train.global_batch >= least) {
    return loaded;
  }
  const std::string batch = "train.global_batch=" + std::to_string(least);
  std::cerr << "hanji: note: " << batch << ", a grain for each of " << config.run.ranks
            << " ranks, as no batch was set; `hanji train` takes it by --set\n";
  return job.load({.overrides = {{batch, "--ranks"}}});
}

}  // namespace

void add_plan(Verb command) {
  const Verb verb = command.add_verb("plan", "Show what `train` would do, and start nothing");
  auto job = std::make_shared<JobOptions>();
  auto capacity = std::make_shared<CapacityOptions>();
  auto as_json = std::make_shared<bool>(false);
  auto keys = std::make_shared<bool>(false);
  auto print_config = std::make_shared<bool>(false);
  auto hosts = std::make_shared<int>(1);
  job->add_to(verb);
  verb.add_flag("--json", as_json.get(), "the plan as JSON");
  verb.add_flag("--print-config", print_config.get(), "print every key with its origin, and stop");
  verb.add_option(
          "--hosts", hosts.get(),
          "as if a launcher had started the ranks on so many hosts like this one, joined by "
          "comm.link_bytes_per_second and comm.link_latency")
      .type_name("N")
      .range(1, base::kMaxRanks);
  verb.add_flag("--keys", keys.get(), "every key with type, default and meaning, and stop");
  capacity->add_to(verb);
  verb.on_chosen([=] {
    if (capacity->pairs()) return show_pairs(*capacity, *job, verb, *as_json);
    if (capacity->asked()) return show_capacity(*capacity, *job, verb, *as_json);
    if (capacity->meshes()) return show_meshes(*job, verb, *as_json);
    if (*keys) {
      std::cout << kKeysHeading << plan::schema_markdown();
      return 0;
    }
    if (*print_config) return print_with_origins(job->load());
    const auto checked =
        train::check_job(*hosts == 1 ? job->load() : load_for_hosts(*job), train::FolderUse::kNone);
    if (const int code = report_mistakes(checked); code != 0) return code;
    const plan::Config& config = checked.loaded.config;
    const train::Workload data{*checked.dataset};
    const train::TimingProgress on_timing = *as_json ? train::TimingProgress() : timing_notice();
    const plan::Plan plan = (*hosts == 1 ? train::prepare(config, data, {}, on_timing)
                                         : train::prepare_on_hosts(config, data, *hosts, on_timing))
                                .or_throw();
    print_text(*as_json ? plan::to_json(plan) : plan::describe(plan), *as_json);
    return 0;
  });
}

}  // namespace hanji::cli
