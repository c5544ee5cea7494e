#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "hanji/cli/exercises/judges.h"
#include "hanji/plan/schema.h"

namespace hanji::cli {
namespace {

/// Over sockets nothing is hidden, and a run that computes less is no better.
constexpr double kLower = 0.5;

/// What the script changes: a key with the value that it was given.
struct Change {
  std::string text;  ///< "comm.engine=shm"
  const plan::Key* key = nullptr;
  std::optional<plan::Value> value;
};

Change read_change(const Answers& answers) {
  Change change{answers.text("change").value_or(""), nullptr, std::nullopt};
  const size_t equals = std::min(change.text.find('='), change.text.size());
  change.key = plan::find_key(change.text.substr(0, equals));
  if (change.key == nullptr || equals == change.text.size()) return change;
  auto value = plan::parse_value(*change.key, change.text.substr(equals + 1));
  if (value.ok()) change.value = *std::move(value);
  return change;
}

std::string shown(const plan::Key& key, const plan::Value& value) {
  std::string text = plan::format_value(key, value);
  std::erase(text, '"');
  return text;
}

/// The point of a second run that was trained with another change than the script has by now; none: with that one.
std::optional<Point> judge_kept_change(const Change& change, const OverheadFacts& facts) {
  if (!change.value) {
    return Point{false, fmt::format("change={} is no key with a value", change.text),
                 "write change=comm.KEY=VALUE, with a KEY of hanji plan --keys"};
  }
  const std::string trained = shown(*change.key, change.key->get(facts.after));
  const std::string says = shown(*change.key, *change.value);
  if (says == trained || says == "auto") return std::nullopt;  // a run records what auto has become
  return judge_kept(
      {"after", fmt::format("{}={}", change.key->name, trained), "overhead.sh", change.text});
}

Point judge_change(const Change& change, const OverheadFacts& facts) {
  if (facts.changed_keys.empty()) {
    return {false,
            fmt::format("the folder before has {} already: nothing was changed", change.text),
            "which key decides what moves the bytes? rm -r after, and run the script again"};
  }
  if (facts.changed_keys != std::vector<std::string>{std::string(change.key->name)} ||
      !change.key->name.starts_with("comm.")) {
    return {false,
            fmt::format("these keys differ: {}; the script changes {}",
                        fmt::join(facts.changed_keys, ", "), change.key->name),
            "change one key of [comm], and leave the other words of both commands as they are; "
            "rm -r after, and run the script again"};
  }
  const std::string seen =
      fmt::format("{} was changed: {:.3g} ms are exposed instead of {:.3g} ms", change.key->name,
                  facts.exposed_after * 1e3, facts.exposed_seconds * 1e3);
  if (facts.exposed_after < kLower * facts.exposed_seconds) return {true, seen};
  return {false, seen + ": that is not half as much",
          "which key decides what moves the bytes? ranks of one host have memory in common; "
          "rm -r after, and run the script again"};
}

}  // namespace

Judgement judge_overhead(const Answers& answers, const OverheadFacts& facts) {
  if (facts.engine != "gloo" || facts.exposed_seconds <= 0) {
    return {{false, fmt::format("the folder before was trained with comm.engine={}", facts.engine),
             "leave the first run as it is; rm -r before, and run the script again"}};
  }
  const Change change = read_change(answers);
  if (auto kept = judge_kept_change(change, facts)) return {*std::move(kept)};
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
  judgement.push_back(judge_change(change, facts));
  return judgement;
}

}  // namespace hanji::cli
