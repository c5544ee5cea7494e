#include <fmt/format.h>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/cli/exercises/facts.h"
#include "hanji/cli/exercises/link_facts.h"
#include "hanji/compute/first_gpu.h"
#include "hanji/topology/read_graph.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr std::chrono::seconds kMeasureLimit{120};

CommandEnd run_this_hanji(std::vector<std::string> words, const fs::path& folder,
                          CommandRunner& runner) {
  words.insert(words.begin(), base::executable_path().or_throw().string());
  return runner.run(std::move(words), folder, kMeasureLimit);
}

/// The JSON that a command ends with, behind lines of text.
Json json_of_output(const CommandEnd& end, const std::string& command) {
  const size_t begin = end.output.find('{');
  if (end.exit_code != 0 || begin == std::string::npos) {
    throw Error(base::internal(fmt::format("{} ended with code {}: {}", command, end.exit_code,
                                           last_lines(end.output, 3))));
  }
  return base::parse_json(end.output.substr(begin)).or_throw();
}

double number_in(const Json& json, const char* member) {
  const auto found = json.find(member);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

std::vector<std::string> send_command(const std::string& bytes, const std::string& iterations) {
  return {"bench",   "send", "--ranks", "2", "--engine", "gloo",     "--placement", "private",
          "--bytes", bytes,  "--pairs", "1", "--iters",  iterations, "--json"};
}

void measure_throttled(const fs::path& folder, CommandRunner& runner, LinkFacts& facts) {
  std::string script =
      "ip link set lo up && tc qdisc add dev lo root tbf rate 200mbit burst 256kb latency 50ms && "
      "exec hanji";
  for (const std::string& word : send_command("4MiB", "3")) script += " " + word;
  const CommandEnd end =
      runner.run({"sh", "-c", "exec unshare -rn sh -c \"$0\"", script}, folder, kMeasureLimit);
  if (end.exit_code == 0) {
    facts.throttled_seconds = number_in(json_of_output(end, "hanji bench send"), "seconds_median");
    facts.throttled_by = "a network namespace";
    return;
  }
  const Json simulated =
      json_of_output(run_this_hanji({"simulate", "broadcast", "-p", "2", "--bandwidth", "200Mbit/s",
                                     "--bytes", "4MiB", "--json"},
                                    folder, runner),
                     "hanji simulate");
  facts.throttled_seconds = number_in(simulated.at("algorithms").front(), "seconds");
  facts.throttled_by = "the simulator, as no network namespace can be made here";
}

}  // namespace

LinkFacts measure_links(const fs::path& folder, CommandRunner& runner) {
  const topology::Graph graph = topology::read_graph().or_throw();
  LinkFacts facts =
      facts_of_host(graph, topology::measure_cores(graph, topology::read_machine().or_throw()),
                    compute::measure_first_gpu().rates);
  const Json sent = json_of_output(run_this_hanji(send_command("8MiB", "20"), folder, runner),
                                   "hanji bench send");
  facts.loopback = number_in(sent, "algbw_bytes_per_second");
  measure_throttled(folder, runner, facts);
  return facts;
}

}  // namespace hanji::cli
