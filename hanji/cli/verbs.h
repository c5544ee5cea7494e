#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace hanji::cli {

/// A verb adds its subcommand to the command line and sets `run` when it is chosen; `run` returns
/// the exit code. One file per verb, named after it.
using Run = std::function<int()>;

void add_train(CLI::App& app, Run& run);
void add_plan(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_ckpt(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_debug(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_simulate(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_topo(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
/// Hidden: what `train` starts once per rank.
void add_rank(CLI::App& app, Run& run);
/// Hidden: what `bench` starts once per rank.
void add_bench_rank(CLI::App& app, Run& run);
/// Hidden: what `verify` starts once per rank.
void add_verify_rank(CLI::App& app, Run& run);

}  // namespace hanji::cli
