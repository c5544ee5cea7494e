#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/cli/exercises/judges.h"
#include "hanji/topology/nominal.h"

namespace hanji::cli {
namespace {

constexpr double kGiga = 1e9;
constexpr double kOrder = 4;  // of size: what other processes and other moments change is less

Point judge_rate(const Answers& answers, std::string_view name, double rate,
                 const std::string& what, const std::string& hint) {
  return judge_order(answers,
                     {name, rate / kGiga, kOrder,
                      fmt::format("{}, measured again: {:.3g} GB/s", what, rate / kGiga), hint});
}

/// The name of a row of `hanji topo --nominal` whose rate is within a factor of two of `rate`.
Point judge_row(const Answers& answers, std::string_view name, double rate,
                const std::string& what) {
  const std::string given = answers.text(name).value_or("");
  const auto rows = topology::nominal_links();
  const auto row = std::ranges::find_if(rows, [&](const topology::NominalLink& one) {
    return one.name == given || one.name.starts_with(given + " (");  // "NVLink 4 x18 (H100)"
  });
  const std::string hint =
      "hanji topo --nominal: the first column is the name, the second the rate one way";
  if (row == rows.end()) {
    return {false, fmt::format("{}=\"{}\" is no link of the table", name, given), hint};
  }
  const double ratio = row->bytes_per_second / rate;
  const std::string seen = fmt::format("{} has {:.3g} GB/s, {} {:.3g} GB/s", given,
                                       row->bytes_per_second / kGiga, what, rate / kGiga);
  if (ratio >= 0.5 && ratio <= 2) return {true, fmt::format("{}: {}", name, seen)};
  return {
      false,
      fmt::format("{}: {}: that is {:.2g} times as much, another order of size", name, seen, ratio),
      hint};
}

/// By the rate that was answered, which was looked for in the table: sockets vary from run to run.
Point judge_like(const Answers& answers, double measured) {
  const double answered = answers.number("loopback_gb").value_or(0) * kGiga;
  return answered > 0 ? judge_row(answers, "loopback_is_like", answered, "loopback_gb is")
                      : judge_row(answers, "loopback_is_like", measured, "the socket");
}

void judge_throttled(const Answers& answers, const LinkFacts& facts, Judgement& judgement) {
  const double milliseconds = kThrottledBytes * 8 / kThrottledBitsPerSecond * 1e3;
  judgement.push_back(judge_number(
      answers, {"predicted_ms", milliseconds, 0.1,
                fmt::format("4 MiB are {:.3g} Mbit, which take {:.0f} ms at 200 Mbit/s",
                            kThrottledBytes * 8 / 1e6, milliseconds),
                "bytes times 8 are bits; divide by the bits of a second, and times 1000 for "
                "milliseconds"}));
  judgement.push_back(
      judge_number(answers, {"measured_ms", facts.throttled_seconds * 1e3, 0.25,
                             fmt::format("measured again in {}: {:.0f} ms", facts.throttled_by,
                                         facts.throttled_seconds * 1e3),
                             "the rate of tc's tbf is that of the link: 200mbit"}));
}

void judge_gpu(const Answers& answers, const LinkFacts& facts, Judgement& judgement) {
  const std::string link = answers.text("gpu_link").value_or("");
  if (!facts.has_gpu) {
    judgement.push_back(
        {link == "none",
         link == "none"
             ? "no GPU is here that this build can measure: NVLink against PCIe is skipped"
             : fmt::format("gpu_link={}, but no GPU is here that this build can measure", link),
         link == "none" ? "" : "write gpu_link=none; hanji topo shows GPUs"});
    return;
  }
  if (facts.gpu_link_rate > 0) {
    judgement.push_back(
        judge_row(answers, "gpu_link", facts.gpu_link_rate, facts.gpu_link + " of this host"));
  } else {
    judgement.push_back(
        {true, "nothing tells the rate of the GPU's link here: gpu_link is skipped"});
  }
  judgement.push_back(judge_rate(answers, "gpu_copy_gb", facts.gpu_copy, "pinned memory to the GPU",
                                 "hanji topo --measure, its line of the GPU"));
  if (facts.pcie_rate <= 0) return;
  judgement.push_back(
      {facts.gpu_copy <= facts.pcie_rate,
       fmt::format("the copy reaches {:.0f} % of its PCIe link ({:.3g} GB/s)",
                   100 * facts.gpu_copy / facts.pcie_rate, facts.pcie_rate / kGiga),
       facts.gpu_copy <= facts.pcie_rate ? "" : "a link gives no more than its rate"});
}

}  // namespace

Judgement judge_links(const Answers& answers, const LinkFacts& facts) {
  const std::string topo = "hanji topo --measure prints it; GB = 10^9 bytes";
  Judgement judgement;
  judgement.push_back(
      judge_rate(answers, "memory_one_gb", facts.memory_one, "one core copies", topo));
  judgement.push_back(
      judge_rate(answers, "memory_all_gb", facts.memory_all, "all cores copy at once", topo));
  if (facts.between_cores > 0) {
    judgement.push_back(judge_rate(answers, "between_cores_gb", facts.between_cores,
                                   "one core copies what the farthest one wrote", topo));
  } else {
    judgement.push_back({true, "one core alone: nothing lies between cores"});
  }
  judgement.push_back(judge_rate(answers, "loopback_gb", facts.loopback,
                                 "a message through a socket",
                                 "hanji bench send --engine gloo: the column algbw"));
  judgement.push_back(judge_like(answers, facts.loopback));
  judge_throttled(answers, facts, judgement);
  judge_gpu(answers, facts, judgement);
  return judgement;
}

}  // namespace hanji::cli
