#include <fmt/format.h>

#include <iostream>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/cli/bench/measure.h"
#include "hanji/cli/bench/peers.h"
#include "hanji/cli/bench/rank.h"
#include "hanji/cli/bench_fit.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

constexpr const char* kPeers[] = {"openmpi", "mpich", "gloo", "pytorch"};

// All that is alive while a bench runs; ends the ranks when it goes.
class Bench {
 public:
  Bench(const BenchWish& wish, const BenchOptions& options)
      : wish_(wish),
        options_(options),
        machine_(topology::read_machine().or_throw()),
        folder_(BenchFolder::make().or_throw()),
        sides_{.wish = wish_} {}

  BenchSides& start() {
    const HostRates known = host_rates(machine_, wish_.ranks);
    sides_.rates = known.rates;
    sides_.prices = known.source;
    sides_.cache_bytes = machine_.caches.empty() ? 0 : machine_.caches.back().bytes;
    sides_.probes = wish_.ranks > 1 && wish_.ranks <= machine_.usable_cores;
    sides_.folder = folder_.path();
    sides_.ours = &start_ours();
    for (const char* name : kPeers) sides_.rivals.push_back(rival(name));
    return sides_;
  }

  std::string heading() const {
    const std::string machine = fmt::format(
        "{} on {} usable cores, {}, last cache {}; GB = 10^9 B; %lim: share of the speed at which "
        "the ranks update memory of their own",
        base::counted(wish_.ranks, "rank"), machine_.usable_cores, machine_.cpu_model,
        base::format_bytes(sides_.cache_bytes));
    return report::bench_note(machine, output_columns()) +
           report::bench_note("pred: " + sides_.prices, output_columns());
  }

 private:
  Side& keep(std::unique_ptr<Side> side) {
    all_.push_back(std::move(side));
    return *all_.back();
  }

  Side& start_ours() {
    const auto folder = folder_.path() / "hanji";
    Side& side = keep(Side::make("hanji", folder, wish_.ranks).or_throw());
    base::Json plan;
    plan["timeout_seconds"] = wish_.timeout.count();
    plan["rates"] = base::Json::parse(cost::to_json(sides_.rates));
    launch::LaunchOptions options;
    options.program = launch::Program::kThis;
    options.command = {base::executable_path().or_throw().string(), "bench-rank", "--folder",
                       folder.string()};
    options.ranks = wish_.ranks;
    options.cpus = topology::cpus_per_rank(machine_, wish_.ranks);
    options.plan_json = base::dump(plan);
    options.environment = {"OMP_NUM_THREADS=1"};
    options.log_directory = folder / "logs";
    side.start(std::move(options));
    return side;
  }

  BenchRival rival(const std::string& name) {
    BenchRival result{.name = name};
    if (std::find(wish_.peers.begin(), wish_.peers.end(), name) == wish_.peers.end()) {
      result.asked = false;
      result.reason = "not asked for; add --peer " + name;
    } else if (name == "gloo") {
      result.side = sides_.ours;
      result.engine = "c10d_gloo";
      if (!comm::gloo::available()) result.reason = "this libtorch was built without Gloo";
    } else {
      const auto folder = folder_.path() / name;
      auto launch = peer_launch(name, wish_, options_.python, folder, machine_.usable_cores);
      if (!launch.ok()) {
        result.reason = launch.status().message();
      } else {
        result.side = &keep(Side::make(name, folder, wish_.ranks).or_throw());
        result.side->start(*std::move(launch));
      }
    }
    return result;
  }

  const BenchWish& wish_;
  const BenchOptions& options_;
  topology::Machine machine_;
  BenchFolder folder_;
  BenchSides sides_;
  std::vector<std::unique_ptr<Side>> all_;
};

int run_bench(const BenchOptions& options) {
  if (options.fit) {
    return bench_fit({.ranks = options.ranks_to_fit().or_throw(), .as_json = options.as_json});
  }
  const auto machine = topology::read_machine().or_throw();
  const BenchWish wish = options.wish(machine.usable_cores).or_throw();
  Bench bench(wish, options);
  BenchSides& sides = bench.start();
  if (!options.as_json) std::cout << bench.heading();
  bool wrong = false;
  for (const schedule::Routine routine : wish.routines) {
    if (!options.as_json) {
      std::cout << "\n# " << name_of(routine) << "\n"
                << report::bench_heading(routine, output_columns());
    }
    for (const report::BenchCase& call : wish.cases(routine)) {
      const auto lines = measure_case(call, sides).or_throw();
      for (const report::BenchLine& line : lines) {
        if (options.as_json) std::cout << report::to_json(line);
        wrong |= line.wrong.value_or(0) > 0;
      }
      if (!options.as_json) std::cout << report::bench_rows(lines, output_columns());
      std::cout << std::flush;
    }
  }
  if (wrong) std::cerr << "hanji: some results are wrong; their times were not taken\n";
  return wrong ? kDiffers : 0;
}

}  // namespace

void add_bench(Verb command) {
  const Verb verb = command.add_verb(
      "bench", "How long collectives take, beside the memory's limit and other libraries");
  auto options = std::make_shared<BenchOptions>();
  options->add_to(verb);
  verb.on_chosen([=] { return run_bench(*options); });
  add_bench_scaling(verb);
}

void add_bench_rank(Verb command) {
  const Verb verb = command.add_verb("bench-rank", "");
  auto folder = std::make_shared<std::string>();
  verb.add_option("--folder", folder.get()).required();
  verb.on_chosen([=] { return serve_bench(*folder); });
}

}  // namespace hanji::cli
