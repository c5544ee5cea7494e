#include "hanji/cli/bench/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "hanji/base/env.h"
#include "hanji/base/file.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;
using Command = std::vector<std::string>;

std::optional<fs::path> find_program(const std::vector<std::string>& names) {
  const auto environment = base::read_environment();
  const auto found = std::ranges::find(environment, "PATH", &base::NamedValue::name);
  const std::string path = found == environment.end() ? "" : found->value;
  for (const std::string& name : names) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      const fs::path candidate = fs::path(rest.substr(0, end)) / name;
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return std::nullopt;
}

// Beside the command where it was built, or where it is installed.
Result<fs::path> find_beside(const std::string& name, const std::string& otherwise) {
  HANJI_ASSIGN_OR_RETURN(const fs::path program, base::executable_path());
  const fs::path folder = program.parent_path();
  for (const fs::path& candidate :
       {folder / "bench" / name, folder.parent_path() / "libexec" / "hanji" / name}) {
    if (fs::exists(candidate)) return candidate;
  }
  return base::not_found(fmt::format("{} is not beside {}: {}", name, program.string(), otherwise));
}

Result<fs::path> mpi_program(const std::string& name, const std::string& package) {
  return find_beside(
      "peer_" + name,
      fmt::format("it is built where mpicc.{} is; install {} and build again", name, package));
}

Result<Command> openmpi(int ranks, bool oversubscribed, const std::string& folder) {
  const auto mpirun = find_program({"mpirun.openmpi", "mpirun"});
  if (!mpirun) return base::not_found("mpirun was not found; install openmpi-bin");
  HANJI_ASSIGN_OR_RETURN(const fs::path program, mpi_program("openmpi", "libopenmpi-dev"));
  Command command = {mpirun->string(), "--allow-run-as-root", "-np", std::to_string(ranks)};
  const Command place = oversubscribed
                            ? Command{"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"}
                            : Command{"--bind-to", "core"};
  command.insert(command.end(), place.begin(), place.end());
  command.insert(command.end(), {program.string(), folder});
  return command;
}

Result<Command> mpich(int ranks, bool oversubscribed, const std::string& folder) {
  const auto mpiexec = find_program({"mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra"});
  if (!mpiexec) return base::not_found("mpiexec.mpich was not found; install mpich");
  HANJI_ASSIGN_OR_RETURN(const fs::path program, mpi_program("mpich", "libmpich-dev"));
  Command command = {mpiexec->string(), "-n", std::to_string(ranks)};
  if (!oversubscribed) command.insert(command.end(), {"-bind-to", "core"});
  command.insert(command.end(), {program.string(), folder});
  return command;
}

}  // namespace

Result<launch::LaunchOptions> peer_launch(const std::string& name, const BenchWish& wish,
                                          const std::string& python, const fs::path& folder,
                                          int usable_cores) {
  launch::LaunchOptions options;
  options.log_directory = folder / "logs";
  if (name == "pytorch") {
    HANJI_ASSIGN_OR_RETURN(const fs::path script,
                           find_beside("peer_pytorch.py", "build or install hanji again"));
    HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
    options.command = {python, "-B", script.string(), folder.string()};
    options.ranks = wish.ranks;
    options.cpus = topology::cpus_per_rank(machine, wish.ranks);
    options.environment = {"OMP_NUM_THREADS=1"};
    return options;
  }
  const bool oversubscribed = wish.ranks > usable_cores;
  const auto make = name == "mpich" ? mpich : openmpi;
  HANJI_ASSIGN_OR_RETURN(options.command, make(wish.ranks, oversubscribed, folder.string()));
  options.environment = {"OMP_NUM_THREADS=1"};
  return options;
}

}  // namespace hanji::cli
