#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

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
  root.footer(
      "Begin with: hanji train --out first    (then: hanji report first)\n"
      "Help of one: hanji train --help. Pages on each topic: docs/README.md beside the sources.");
  hanji::cli::add_train(root);
  hanji::cli::add_generate(root);
  hanji::cli::add_run(root);
  hanji::cli::add_plan(root);
  hanji::cli::add_verify(root);
  hanji::cli::add_ckpt(root);
  hanji::cli::add_data(root);
  hanji::cli::add_report(root);
  hanji::cli::add_top(root);
  hanji::cli::add_debug(root);
  hanji::cli::add_doctor(root);
  hanji::cli::add_simulate(root);
  hanji::cli::add_explain(root);
  hanji::cli::add_topo(root);
  hanji::cli::add_bench(root);
  hanji::cli::add_exercise(root);
  hanji::cli::add_completion(root);
  hanji::cli::add_rank(root);
  hanji::cli::add_time_gpu(root);
  hanji::cli::add_bench_rank(root);
  hanji::cli::add_verify_rank(root);
  return command.run({argv + 1, argv + argc});
}

int report(const hanji::Status& status) {
  std::cerr << "hanji: " << status.message() << "\n";
  return hanji::cli::exit_code(status.code());
}

bool reader_left() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/// `code`, or that of a full disk if what was printed is lost. What is written into a folder stays
/// good without it: a run and its ranks only say so.
int finish_output(int code, std::string_view verb) {
  std::cout.flush();
  const bool whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (whole || reader_left()) return code;
  const int lost = report(hanji::base::out_of_memory(
      "standard output: part of it could not be written; free space where it goes, or send it to "
      "another file"));
  const bool prints_result = verb != "train" && !verb.ends_with("rank");
  return prints_result && code == 0 ? lost : code;
}

int run_main(int argc, char** argv) {
  try {
    return finish_output(run_command(argc, argv), argc > 1 ? argv[1] : "");
  } catch (const hanji::Error& error) {
    return report({error.code(), error.what()});
  } catch (const std::filesystem::filesystem_error& error) {
    return report(hanji::base::from_errno(error.path1().native(), error.code().value()));
  } catch (const std::exception& error) {
    return report(hanji::cli::status_of(error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe or a limit on files fails the write, and does not end a run of many hours.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  const int code = run_main(argc, argv);
  std::fflush(nullptr);
  // libtorch's static objects are not destroyed: that takes a third of the time of a short command.
  std::_Exit(code);
}
