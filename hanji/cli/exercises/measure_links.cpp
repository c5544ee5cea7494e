#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/cli/exercises/facts.h"

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

void read_core_rates(const Json& measured, LinkFacts& facts) {
  const Json& copies = measured.at("copies");
  if (copies.empty()) throw Error(base::internal("hanji topo --measure: no copy was measured"));
  facts.memory_one = number_in(copies.front(), "bytes_per_second");
  facts.memory_all = number_in(copies.back(), "bytes_per_second");
  const Json& pairs = measured.at("pairs");
  if (!pairs.empty()) facts.between_cores = number_in(pairs.back(), "bytes_per_second");
}

void read_gpu_link(const Json& topo, LinkFacts& facts) {
  for (const Json& link : topo.at("links")) {
    const std::string to = link.at("to"), from = link.at("from"), kind = link.at("kind");
    if (!to.starts_with("gpu:") && !from.starts_with("gpu:")) continue;
    const double rate = number_in(link, "bytes_per_second");
    facts.has_gpu = true;
    if (kind == "pcie") facts.pcie_rate = std::max(facts.pcie_rate, rate);
    if (rate <= facts.gpu_link_rate) continue;
    facts.gpu_link_rate = rate;
    facts.gpu_link = link.at("label");
  }
  facts.gpu_copy = number_in(topo.at("measured_gpu"), "host_bytes_per_second");
  facts.has_gpu = facts.has_gpu && facts.gpu_copy > 0;
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
  const CommandEnd end = runner.run({"unshare", "-rn", "sh", "-c", script}, folder, kMeasureLimit);
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
  LinkFacts facts;
  const Json topo =
      json_of_output(run_this_hanji({"topo", "--measure", "--json"}, folder, runner), "hanji topo");
  read_core_rates(topo.at("measured"), facts);
  read_gpu_link(topo, facts);
  const Json sent = json_of_output(run_this_hanji(send_command("8MiB", "20"), folder, runner),
                                   "hanji bench send");
  facts.loopback = number_in(sent, "algbw_bytes_per_second");
  measure_throttled(folder, runner, facts);
  return facts;
}

}  // namespace hanji::cli
