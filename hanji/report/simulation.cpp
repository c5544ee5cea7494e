#include "hanji/report/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

using cost::Answer;
using cost::Question;
using cost::Round;
using cost::Transfer;
using schedule::Routine;

constexpr size_t kMaxRounds = 16;  // of a timeline
constexpr size_t kMaxArrows = 16;  // of a round
constexpr size_t kFewRounds = 7;   // of a timeline beside others
constexpr int kShownSegments[] = {1, 5, 50};

std::string arrows(const Round& round) {
  std::string text;
  for (size_t i = 0; i < round.transfers.size() && i < kMaxArrows; ++i) {
    const Transfer& one = round.transfers[i];
    text += fmt::format("{}{}->{}", i == 0 ? "" : ", ", one.from, one.to);
  }
  if (round.transfers.size() > kMaxArrows) {
    text += fmt::format(", ... {} in all", round.transfers.size());
  }
  return text;
}

// "5 MB each", and at what rate where they share ports.
std::string sizes(const Round& round, const cost::Network& network) {
  const Transfer& first = round.transfers.front();
  for (const Transfer& one : round.transfers) {
    if (one.bytes != first.bytes) return "";
  }
  std::string text = base::format_bytes(first.bytes);
  const double rate =
      static_cast<double>(first.bytes) / (first.end - first.start - network.latency_seconds);
  if (rate < 0.99 * network.bytes_per_second) {
    text += fmt::format(" at {}/s each", base::format_bytes(std::llround(rate)));
  }
  return text;
}

// Of one rank's steps: what each round moves, and no more than that.
std::string path_text(const Answer& answer, const cost::Network& network, size_t most) {
  std::string text;
  const std::vector<Round> rounds = rounds_of(answer.timeline);
  for (size_t i = 0; i < rounds.size() && i < most; ++i) {
    text += fmt::format("  at {:>8}  {} of each rank that has a message\n",
                        exact_seconds(rounds[i].start), sizes(rounds[i], network));
  }
  if (rounds.size() > most)
    text += fmt::format("  ... {} in all\n", base::counted(rounds.size(), "round"));
  return text;
}

std::string rounds_text(const Answer& answer, const cost::Network& network, size_t most) {
  if (!answer.list.kept.is_whole()) return path_text(answer, network, most);
  std::string text;
  std::vector<int64_t> received(answer.list.ranks);
  const std::vector<Round> rounds = rounds_of(answer.timeline);
  for (size_t i = 0; i < rounds.size() && i < most; ++i) {
    int served = 0;
    for (const Transfer& one : rounds[i].transfers) received[one.to] += one.bytes;
    for (const int64_t bytes : received) served += bytes >= answer.list.count && bytes > 0;
    text += fmt::format("  at {:>8}  {:<38} {}", exact_seconds(rounds[i].start), arrows(rounds[i]),
                        sizes(rounds[i], network));
    if (answer.list.routine == Routine::kBroadcast && served > 0) {
      text += fmt::format("; then {} other{} served", served, served == 1 ? "" : "s");
    }
    text += "\n";
  }
  if (rounds.size() > most)
    text += fmt::format("  ... {} in all\n", base::counted(rounds.size(), "round"));
  return text;
}

std::string heading(const Answer& answer) {
  std::string text = fmt::format("\n{}", answer.algorithm.name);
  if (answer.segments > 0) text += fmt::format(" in {}", base::counted(answer.segments, "segment"));
  return text + fmt::format(": {}\n", exact_seconds(answer.seconds()));
}

bool is_left_out(const schedule::Algorithm& algorithm, const Question& question) {
  const auto left_out = cost::left_out(question);
  return std::ranges::any_of(left_out,
                             [&](const auto& one) { return one.algorithm.name == algorithm.name; });
}

// A pipeline with 1, 5, 50 segments.
Result<std::string> pipelines_text(const Question& question) {
  std::string text;
  for (const auto& algorithm : schedule::message_algorithms(question.routine)) {
    if (!algorithm.is_pipelined || is_left_out(algorithm, question)) continue;
    text += fmt::format("\n{} by segments k:", algorithm.name);
    for (const int segments : kShownSegments) {
      Question one = question;
      one.segments = segments;
      HANJI_ASSIGN_OR_RETURN(const Answer found, compared(algorithm, one));
      text += fmt::format("{} {} with {}", segments == 1 ? "" : ",", exact_seconds(found.seconds()),
                          segments);
    }
    text += "\n";
  }
  return text;
}

// An all_reduce around a ring is a reduce_scatter and an all_gather.
Result<std::string> halves_text(const Question& question) {
  if (question.routine != Routine::kAllReduce) return std::string();
  std::string text = "\nring, by halves:";
  for (const Routine half : {Routine::kReduceScatter, Routine::kAllGather}) {
    Question one = question;
    one.routine = half;
    for (const auto& algorithm : schedule::message_algorithms(half)) {
      if (algorithm.name != "ring") continue;
      HANJI_ASSIGN_OR_RETURN(const Answer found, compared(algorithm, one));
      text += fmt::format("{} {} {}", half == Routine::kAllGather ? "," : "", name_of(half),
                          exact_seconds(found.seconds()));
    }
  }
  return text + "\n";
}

// Who beats the fastest for smaller messages, and below which size.
Result<std::string> turns_text(const Question& question, const std::vector<Answer>& answers) {
  Question sized = question;
  sized.segments = 0;
  if (sized.network.latency_seconds == 0) sized.network.latency_seconds = kExampleLatency;
  std::string text;
  for (size_t i = 1; i < answers.size(); ++i) {
    if (is_left_out(answers[i].algorithm, question) ||
        is_left_out(answers[0].algorithm, question)) {
      continue;
    }
    HANJI_ASSIGN_OR_RETURN(const auto size, crossover(answers[i].algorithm, answers[0].algorithm,
                                                      sized, question.bytes));
    if (!size) continue;
    text += fmt::format("{}{} below {}", text.empty() ? "" : ", ", answers[i].algorithm.name,
                        base::format_bytes(*size));
  }
  if (text.empty()) return text;
  return fmt::format("\nwith {} of latency per message these are faster than {}: {}\n",
                     exact_seconds(sized.network.latency_seconds), answers[0].algorithm.name, text);
}

}  // namespace

std::string timeline_text(const Answer& answer, const cost::Network& network) {
  std::string text = heading(answer).substr(1);
  const cost::Terms& terms = answer.timeline.terms;
  text += fmt::format("  {} of latency, {} of bandwidth, {} of reduction; {}\n",
                      exact_seconds(terms.latency), exact_seconds(terms.bandwidth),
                      exact_seconds(terms.reduction), base::counted(terms.rounds, "round"));
  return text + rounds_text(answer, network, kMaxRounds);
}

std::string timeline_json(const Answer& answer) {
  base::Json json = {{"algorithm", answer.algorithm.name},
                     {"segments", answer.segments},
                     {"seconds", answer.seconds()}};
  base::Json transfers = base::Json::array();
  for (const Transfer& one : answer.timeline.transfers) {
    transfers.push_back(base::Json::array({one.from, one.to, one.bytes, one.start, one.end}));
  }
  json[answer.list.kept.is_whole() ? "transfers" : "longest_path"] = std::move(transfers);
  return base::dump(json) + "\n";
}

Result<std::string> simulation_text(const Question& question, int columns) {
  HANJI_ASSIGN_OR_RETURN(const CollectiveCost cost, cost_on_network(question));
  std::string text = to_text(cost, columns);
  HANJI_ASSIGN_OR_RETURN(const auto answers, cost::answers(question));
  for (const Answer& one : answers) {
    const size_t rounds = rounds_of(one.timeline).size();
    if (rounds == 0 || rounds > kFewRounds) continue;
    text += heading(one) + rounds_text(one, question.network, kFewRounds);
  }
  HANJI_ASSIGN_OR_RETURN(const std::string pipelines, pipelines_text(question));
  HANJI_ASSIGN_OR_RETURN(const std::string halves, halves_text(question));
  HANJI_ASSIGN_OR_RETURN(const std::string turns, turns_text(question, answers));
  return text + pipelines + halves + turns;
}

}  // namespace hanji::report
