#include "hanji/cli/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/report/bench_values.h"

namespace hanji::cli {
namespace {

using report::BenchCase;
using report::BenchLine;
using report::BenchPlacement;
using report::BenchRequest;

constexpr double kBlockSeconds = 0.025;  // of one side in one round
constexpr int64_t kFewestCalls = 3;
constexpr int64_t kMaxCalls = 2000;
constexpr int64_t kLimitBytes = int64_t{1} << 20;  // less would time the clock
constexpr int64_t kLimitCalls = 3;

// One side in one placement: what it is asked in every round, and what came of it.
struct Turn {
  Side* side = nullptr;
  BenchRequest request{};
  bool is_ours = false;
  std::string peer{};     ///< Its name; empty for ours.
  std::string trouble{};  ///< Why it has no time.
  bool asked = true;
  std::vector<double> seconds{};
  std::vector<double> medians{};
  std::vector<double> shares{};  ///< Percent of the limit, by round.
  int64_t wrong = 0;

  bool takes_part() const { return trouble.empty() && wrong == 0; }
};

struct Probes {
  std::vector<double> before, after;
};

class Measurement {
 public:
  Measurement(BenchCase call, BenchSides& sides) : call_(call), sides_(sides) {}

  Result<std::vector<BenchLine>> run() {
    HANJI_RETURN_IF_ERROR(write_table());
    line_up();
    for (Turn& turn : turns_) HANJI_RETURN_IF_ERROR(settle(turn));
    for (int round = 0; round < sides_.wish.pairs; ++round) HANJI_RETURN_IF_ERROR(run(round));
    return lines();
  }

 private:
  Status write_table();
  void line_up();
  BenchRequest request_of(const std::string& engine, BenchPlacement placement) const;
  Status settle(Turn& turn);
  Status check(Turn& turn);
  Status run(int round);
  Status measure(Turn& turn);
  Result<double> limit_rate(BenchPlacement placement);
  Result<double> probe();
  /// The seconds of each call; nothing, and the reason in the turn, where a peer failed.
  Result<std::vector<double>> ask(Turn& turn, const BenchRequest& request);
  std::vector<BenchLine> lines() const;
  BenchLine line_of(const Turn& turn) const;
  report::BenchPeer peer_of(const Turn& ours, const Turn& peer) const;
  void predict(BenchLine& line) const;

  BenchCase call_;
  BenchSides& sides_;
  std::string table_;
  std::vector<Turn> turns_;
  Probes probes_;
};

Status Measurement::write_table() {
  const std::vector<double> table = report::value_table(call_);
  table_ = sides_.folder / fmt::format("table.{}.{}", base::name_of(call_.dtype),
                                       reduces(call_.routine) ? name_of(call_.op) : "moved");
  const auto bytes = std::as_bytes(std::span(table));
  return base::write_file_atomic(
      table_, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

BenchRequest Measurement::request_of(const std::string& engine, BenchPlacement placement) const {
  BenchRequest request;
  request.call = call_;
  request.engine = engine;
  request.placement = placement;
  request.table = table_;
  request.corrupt = sides_.wish.corrupt;
  request.refill = sides_.wish.caches == BenchWish::Caches::kRefilled;
  if (sides_.wish.caches == BenchWish::Caches::kCold) {
    const int64_t each = std::max<int64_t>(report::size_of(call_), 64);
    request.slots = std::max<int64_t>(2, 2 * sides_.cache_bytes / each + 1);
    request.scrub_bytes = sides_.cache_bytes;
  }
  return request;
}

void Measurement::line_up() {
  for (const BenchPlacement placement : sides_.wish.placements) {
    turns_.push_back({.side = sides_.ours,
                      .request = request_of(sides_.wish.engine, placement),
                      .is_ours = true});
  }
  for (const BenchRival& rival : sides_.rivals) {
    turns_.push_back(
        {.side = rival.side,
         .request = request_of(rival.engine.empty() ? "-" : rival.engine, BenchPlacement::kPrivate),
         .peer = rival.name,
         .trouble = rival.reason,
         .asked = rival.asked});
    turns_.back().request.corrupt = -1;
  }
}

Result<std::vector<double>> Measurement::ask(Turn& turn, const BenchRequest& request) {
  auto answers = turn.side->ask(request.to_line(), sides_.wish.timeout);
  if (!answers.ok()) {
    if (turn.is_ours || turn.side == sides_.ours) return answers.status();
    turn.trouble = answers.status().message();
    return std::vector<double>();
  }
  for (const report::BenchAnswer& answer : *answers) {
    turn.wrong += answer.wrong;
    if (answer.error.empty()) continue;
    if (turn.is_ours) return base::unsupported(answer.error);
    turn.trouble = answer.error;
    return std::vector<double>();
  }
  return report::over_ranks(*answers, sides_.wish.average);
}

// Looks at one result, then finds out how many calls take a moment.
Status Measurement::settle(Turn& turn) {
  if (!turn.takes_part()) return {};
  HANJI_RETURN_IF_ERROR(check(turn));
  if (!turn.takes_part()) return {};
  const BenchWish& wish = sides_.wish;
  if (wish.calls > 0) {
    turn.request.calls = wish.calls;
  } else {
    BenchRequest trial = turn.request;
    trial.calls = kFewestCalls;
    const int64_t start = base::now_ns();
    HANJI_RETURN_IF_ERROR(ask(turn, trial).status());
    const double each = static_cast<double>(base::now_ns() - start) * 1e-9 / kFewestCalls;
    turn.request.calls =
        std::clamp(static_cast<int64_t>(kBlockSeconds / each), kFewestCalls, kMaxCalls);
    // The trial's share of a round's own costs hides how short a short call is.
    if (turn.request.calls > kFewestCalls) {
      trial.calls = turn.request.calls;
      HANJI_ASSIGN_OR_RETURN(const auto seconds, ask(turn, trial));
      if (!seconds.empty()) {
        const double call = 2 * report::median(seconds) + 1e-6;
        turn.request.calls =
            std::clamp(static_cast<int64_t>(kBlockSeconds / call), turn.request.calls, kMaxCalls);
      }
    }
  }
  turn.request.warmup =
      wish.warmup >= 0 ? wish.warmup : std::max<int64_t>(turn.request.calls / 5, 1);
  turn.request.check = wish.check && turn.request.refill;
  return {};
}

Status Measurement::check(Turn& turn) {
  BenchRequest once = turn.request;
  once.refill = true;
  once.check = sides_.wish.check;
  once.slots = 1;
  return ask(turn, once).status();
}

Status Measurement::run(int round) {
  HANJI_ASSIGN_OR_RETURN(const double before, probe());
  const auto count = static_cast<int>(turns_.size());
  for (int i = 0; i < count; ++i) {
    Turn& turn = turns_[round % 2 == 0 ? i : count - 1 - i];
    if (turn.takes_part()) HANJI_RETURN_IF_ERROR(measure(turn));
  }
  HANJI_ASSIGN_OR_RETURN(const double after, probe());
  probes_.before.push_back(before);
  probes_.after.push_back(after);
  return {};
}

Status Measurement::measure(Turn& turn) {
  HANJI_ASSIGN_OR_RETURN(const auto seconds, ask(turn, turn.request));
  if (seconds.empty()) return {};
  turn.seconds.insert(turn.seconds.end(), seconds.begin(), seconds.end());
  turn.medians.push_back(report::median(seconds));
  const double traffic = report::least_traffic(call_);
  if (!turn.is_ours || traffic == 0) return {};
  HANJI_ASSIGN_OR_RETURN(const double rate, limit_rate(turn.request.placement));
  turn.shares.push_back(100 * traffic / rate / turn.medians.back());
  return {};
}

// Bytes per second that all ranks together read and write at most, just now.
Result<double> Measurement::limit_rate(BenchPlacement placement) {
  const int64_t bytes = std::max(report::size_of(call_), kLimitBytes);
  HANJI_ASSIGN_OR_RETURN(
      const auto answers,
      sides_.ours->ask(fmt::format("limit {} {} {}", name_of(placement), bytes, kLimitCalls + 1),
                       sides_.wish.timeout));
  auto seconds = report::over_ranks(answers, report::Average::kMax);
  if (seconds.empty()) return base::internal("the limit kernel failed: " + answers[0].error);
  seconds.erase(seconds.begin());  // it warms up
  return 2.0 * call_.ranks * static_cast<double>(bytes) / report::median(seconds);
}

Result<double> Measurement::probe() {
  if (!sides_.probes) return 0.0;
  HANJI_ASSIGN_OR_RETURN(const auto answers, sides_.ours->ask("probe", sides_.wish.timeout));
  if (answers[0].seconds.empty()) return base::internal("the probe failed: " + answers[0].error);
  return answers[0].seconds[0];
}

void Measurement::predict(BenchLine& line) const {
  if (line.engine != "shm") {
    line.algorithm = "native";
    return;
  }
  line.predicted_by = sides_.prices;
  const cost::Query query = report::query_of(call_);
  cost::Chooser chooser(sides_.rates);
  const cost::Selection& selection = chooser.select(query);
  const auto& list =
      line.placement == BenchPlacement::kHeap ? selection.in_heap : selection.if_private;
  line.algorithm = list->algorithm;
  const cost::Element element(static_cast<size_t>(query.element_bytes), query.dtype,
                              line.placement == BenchPlacement::kHeap);
  line.predicted_seconds = cost::price_seconds(*list, element, sides_.rates);
}

report::BenchPeer Measurement::peer_of(const Turn& ours, const Turn& peer) const {
  report::BenchPeer result{.name = peer.peer, .reason = peer.trouble, .asked = peer.asked};
  if (peer.wrong > 0)
    result.reason = fmt::format("{} of its result are wrong", base::counted(peer.wrong, "element"));
  if (!result.reason.empty()) return result;
  result.seconds = peer.seconds;
  std::vector<report::BenchPair> pairs;
  for (size_t i = 0; i < std::min(ours.medians.size(), peer.medians.size()); ++i) {
    pairs.push_back({ours.medians[i], peer.medians[i], probes_.before[i], probes_.after[i]});
  }
  result.ratio = report::compare_pairs(pairs);
  return result;
}

BenchLine Measurement::line_of(const Turn& turn) const {
  BenchLine line;
  line.call = call_;
  line.engine = turn.request.engine;
  line.placement = turn.request.placement;
  predict(line);
  if (sides_.wish.check) line.wrong = turn.wrong;
  if (turn.wrong == 0) {
    line.seconds = turn.seconds;
    line.round_medians = turn.medians;
    if (!turn.shares.empty()) line.percent_of_limit = report::median(turn.shares);
  }
  if (sides_.probes) line.probe_seconds = report::median(probes_.before);
  for (const Turn& peer : turns_) {
    if (!peer.is_ours) line.peers.push_back(peer_of(turn, peer));
  }
  return line;
}

std::vector<BenchLine> Measurement::lines() const {
  std::vector<BenchLine> lines;
  for (const Turn& turn : turns_) {
    if (turn.is_ours) lines.push_back(line_of(turn));
  }
  return lines;
}

}  // namespace

Result<std::vector<BenchLine>> measure_case(BenchCase call, BenchSides& sides) {
  std::vector<BenchLine> all;
  for (const bool in_place : {false, true}) {
    const bool exists =
        in_place ? report::has_in_place(call.routine) : report::has_out_of_place(call.routine);
    if (!exists) continue;
    call.in_place = in_place;
    HANJI_ASSIGN_OR_RETURN(const auto lines, Measurement(call, sides).run());
    all.insert(all.end(), lines.begin(), lines.end());
  }
  // Both forms of one placement side by side.
  std::stable_sort(all.begin(), all.end(), [](const BenchLine& a, const BenchLine& b) {
    return a.placement < b.placement;
  });
  return all;
}

}  // namespace hanji::cli
