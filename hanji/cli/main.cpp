#include <csignal>
#include <filesystem>
#include <iostream>

#include "hanji/base/status.h"
#include "hanji/base/version.h"
#include "hanji/cli/command_line.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"

namespace {

int run_command(int argc, char** argv) {
  hanji::cli::CommandLine command(
      "hanji", "Plans, runs, verifies and explains distributed training on libtorch.",
      std::string(hanji::base::version()));
  const hanji::cli::Verb root = command.root();
  root.require_verb();
  hanji::cli::add_train(root);
  hanji::cli::add_generate(root);
  hanji::cli::add_run(root);
  hanji::cli::add_plan(root);
  hanji::cli::add_verify(root);
  hanji::cli::add_ckpt(root);
  hanji::cli::add_data(root);
  hanji::cli::add_debug(root);
  hanji::cli::add_doctor(root);
  hanji::cli::add_simulate(root);
  hanji::cli::add_explain(root);
  hanji::cli::add_topo(root);
  hanji::cli::add_bench(root);
  hanji::cli::add_rank(root);
  hanji::cli::add_bench_rank(root);
  hanji::cli::add_verify_rank(root);
  return command.run({argv + 1, argv + argc});
}

int report(const hanji::Status& status) {
  std::cerr << "hanji: " << status.message() << "\n";
  return hanji::cli::exit_code(status.code());
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe or a limit on files fails the write, and does not end a run of many hours.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  try {
    return run_command(argc, argv);
  } catch (const hanji::Error& error) {
    return report({error.code(), error.what()});
  } catch (const std::filesystem::filesystem_error& error) {
    return report(hanji::base::from_errno(error.path1().native(), error.code().value()));
  } catch (const std::exception& error) {
    return report(hanji::cli::status_of(error));
  }
}
