#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "hanji/base/units.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {
namespace {

/// The word behind `before`; empty where the text has none.
std::string word_behind(const std::string& text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const size_t begin = at + before.size();
  const auto end =
      std::find_if_not(text.begin() + static_cast<int64_t>(begin), text.end(),
                       [](unsigned char one) { return std::isalnum(one) != 0 || one == '_'; });
  return {text.begin() + static_cast<int64_t>(begin), end};
}

Point judge_answer(const Answers& answers, std::string_view name, const std::string& right,
                   const std::string& why, const std::string& hint) {
  std::string given = answers.text(name).value_or("");
  given.resize(
      std::min(given.find('('), given.size()));  // "all_reduce(sum, float32)" is a call, too
  if (given == right) return {true, fmt::format("{}={}: {}", name, given, why)};
  return {false, fmt::format("{}={} is not right: {}", name, given, why), hint};
}

Judgement judge_mended(const HangFacts& facts) {
  if (facts.last_words.find("absent rank") != std::string::npos || facts.timed_out) {
    return {{false, "the program still hangs: " + facts.last_words,
             "every rank must make the same calls: as many all_reduces on each"}};
  }
  if (facts.exit_code != 0) {
    return {{false,
             fmt::format("the program ends with code {}: {}", facts.exit_code, facts.last_words),
             "a rank that leaves while others wait for it ends them, too"}};
  }
  if (static_cast<int>(facts.totals.size()) != facts.ranks) {
    return {{false,
             fmt::format("{} of {} printed a total", facts.totals.size(),
                         base::counted(facts.ranks, "rank")),
             "leave the last lines of the program as they are"}};
  }
  Judgement judgement{{true, "the program ends on all ranks"}};
  for (size_t rank = 0; rank < facts.totals.size(); ++rank) {
    const double total = facts.totals[rank];
    const std::string seen = fmt::format("rank {} has the total {:g}", rank, total);
    if (total == facts.expected_total) {
      judgement.push_back({true, seen + ", of all batches"});
    } else {
      judgement.push_back(
          {false, fmt::format("{}, and all batches together are {:g}", seen, facts.expected_total),
           "a rank without a batch takes part with zeros, so that no batch of another is lost"});
    }
  }
  return judgement;
}

}  // namespace

Judgement judge_hang(const Answers& answers, const HangFacts& facts) {
  const std::string hint = "hanji debug logs, while the job hangs";
  const std::string rank = word_behind(facts.verdict, "absent rank ");
  std::string call = word_behind(facts.verdict, " s in ");
  if (rank.empty() || call.empty()) {
    return {{false, "the program as it was given did not hang here: " + facts.verdict,
             "run the check again"}};
  }
  Judgement judgement;
  judgement.push_back(
      judge_answer(answers, "absent_rank", rank, "rank " + rank + " was absent", hint));
  judgement.push_back(
      judge_answer(answers, "absent_call", call, "the others waited in " + call, hint));
  for (Point& point : judge_mended(facts)) judgement.push_back(std::move(point));
  return judgement;
}

}  // namespace hanji::cli
