#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "hanji/base/status.h"
#include "hanji/base/version.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"

namespace {

int run_command(int argc, char** argv) {
  CLI::App app("Plans, runs, verifies and explains distributed training on libtorch.", "hanji");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(hanji::base::version()));
  hanji::cli::Run run;
  hanji::cli::add_train(app, run);
  hanji::cli::add_generate(app, run);
  hanji::cli::add_run(app, run);
  hanji::cli::add_plan(app, run);
  hanji::cli::add_verify(app, run);
  hanji::cli::add_ckpt(app, run);
  hanji::cli::add_debug(app, run);
  hanji::cli::add_doctor(app, run);
  hanji::cli::add_simulate(app, run);
  hanji::cli::add_explain(app, run);
  hanji::cli::add_topo(app, run);
  hanji::cli::add_bench(app, run);
  hanji::cli::add_rank(app, run);
  hanji::cli::add_bench_rank(app, run);
  hanji::cli::add_verify_rank(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : hanji::cli::kUsage;
  }
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe or a limit on files fails the write, and does not end a run of many hours.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  try {
    return run_command(argc, argv);
  } catch (const hanji::Error& error) {
    std::cerr << "hanji: " << error.what() << "\n";
    return hanji::cli::exit_code(error.code());
  } catch (const std::exception& error) {
    std::cerr << "hanji: " << error.what() << "\n";
    return hanji::cli::exit_code(hanji::Code::kInternal);
  }
}
