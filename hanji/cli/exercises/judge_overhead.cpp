#include <fmt/format.h>

#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {
namespace {

/// Over sockets nothing is hidden, and a run that computes less is no better.
constexpr double kLower = 0.5;

Point judge_change(const OverheadFacts& facts) {
  if (facts.changed_keys.empty()) {
    return {
        false, "the folder after has the keys of the folder before",
        "put a key and its value behind the second --set; rm -r after, and run the script again"};
  }
  std::string keys;
  for (const std::string& key : facts.changed_keys) keys += (keys.empty() ? "" : ", ") + key;
  if (facts.changed_keys.size() > 1 || !facts.changed_keys.front().starts_with("comm.")) {
    return {false, "these keys differ: " + keys,
            "change one key of [comm], so that the ranks compute the same; hanji plan --keys lists "
            "them"};
  }
  const std::string seen =
      fmt::format("{} was changed: {:.3g} ms are exposed instead of {:.3g} ms", keys,
                  facts.exposed_after * 1e3, facts.exposed_seconds * 1e3);
  if (facts.exposed_after < kLower * facts.exposed_seconds) return {true, seen};
  return {false, seen + ": that is not half as much",
          "what moves the bytes? ranks of one host have memory in common; rm -r after, and again"};
}

}  // namespace

Judgement judge_overhead(const Answers& answers, const OverheadFacts& facts) {
  if (facts.engine != "gloo" || facts.exposed_seconds <= 0) {
    return {{false, fmt::format("the folder before was trained with comm.engine={}", facts.engine),
             "leave the first run as it is; rm -r before, and run the script again"}};
  }
  const double milliseconds = facts.exposed_seconds * 1e3;
  const double bound = facts.step_seconds / (facts.step_seconds - facts.exposed_seconds);
  const std::string report =
      "hanji report before: the column `bytes` of a rank, which nothing hides";
  Judgement judgement;
  judgement.push_back(judge_number(
      answers,
      {"exposed_ms", milliseconds, 0.05,
       fmt::format("the ranks recorded {:.3g} ms of exposed all_reduce a step", milliseconds),
       report}));
  judgement.push_back(judge_number(
      answers, {"share_percent", 100 * facts.exposed_seconds / facts.step_seconds, 0.05,
                fmt::format("of a step of {:.3g} ms that is {:.3g} %", facts.step_seconds * 1e3,
                            100 * facts.exposed_seconds / facts.step_seconds),
                "divide by the column `step`, times 100"}));
  judgement.push_back(
      judge_number(answers, {"speed_up_at_most", bound, 0.05,
                             fmt::format("without it a step takes {:.3g} ms: {:.3g} times as fast",
                                         (facts.step_seconds - facts.exposed_seconds) * 1e3, bound),
                             "Amdahl: 1 / (1 - share)"}));
  judgement.push_back(judge_change(facts));
  return judgement;
}

}  // namespace hanji::cli
