#include <fmt/format.h>

#include <optional>

#include "hanji/base/units.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {
namespace {

constexpr double kRoomBytes = 5;    // bytes of moments that a rank has room for, per parameter
constexpr double kMomentBytes = 8;  // bytes of AdamW per parameter in float32
constexpr double kPadding =
    0.05;  // of units to whole blocks of elements; the root unit is gathered once

/// Bytes that all ranks send in a step, in bytes of the parameters: a layer is gathered for forward and for
/// backward, its gradients are scattered within the group, and shards are averaged over the groups.
double wire_of(int ranks, int fsdp) {
  const double f = fsdp, d = ranks / fsdp;
  return ranks * (3 * (f - 1) / f + 2 * (d - 1) / d / f);
}

int best_degree(int ranks) {
  int best = ranks;
  for (int f = 1; f <= ranks; ++f) {
    if (ranks % f == 0 && kMomentBytes / f <= kRoomBytes &&
        wire_of(ranks, f) < wire_of(ranks, best))
      best = f;
  }
  return best;
}

Point judge_mesh(const HybridFacts& facts) {
  const int best = best_degree(facts.ranks);
  const double here = kMomentBytes / facts.fsdp;
  const std::string seen =
      fmt::format("mesh dp={}, fsdp={}: {:.3g} bytes of moments of a parameter on a rank", facts.dp,
                  facts.fsdp, here);
  if (here > kRoomBytes) {
    return {false, fmt::format("{}, and there is room for {:.3g}", seen, kRoomBytes),
            "more shards (mesh.fsdp), fewer replicas (mesh.dp)"};
  }
  if (facts.fsdp != best) {
    return {false,
            fmt::format("{}, which fits, but fsdp={} fits as well and sends {:.3g} instead of "
                        "{:.3g} times the parameters' bytes",
                        seen, best, wire_of(facts.ranks, best), wire_of(facts.ranks, facts.fsdp)),
            "the fewest shards that fit send least"};
  }
  return {true, fmt::format("{}, of {:.3g} at most", seen, kRoomBytes)};
}

/// The point of a run that was trained with another mesh than the script has by now; none: with that one.
std::optional<Point> judge_kept_mesh(const Answers& answers, const HybridFacts& facts) {
  for (const std::string_view name : {"dp", "fsdp"}) {
    if (answers.number(name)) continue;
    return judge_number(answers,
                        {name, 0, 0, "", "leave the last lines of the script as they are"});
  }
  const double dp = *answers.number("dp"), fsdp = *answers.number("fsdp");
  if (dp == facts.dp && fsdp == facts.fsdp) return std::nullopt;
  const auto mesh = [](double d, double f) { return fmt::format("dp={:g}, fsdp={:g}", d, f); };
  return judge_kept({"run", mesh(facts.dp, facts.fsdp), "hybrid.sh", mesh(dp, fsdp)});
}

}  // namespace

Judgement judge_hybrid(const Answers& answers, const HybridFacts& facts) {
  if (facts.strategy != "hsdp" || facts.shares_memory || facts.ranks != 4) {
    return {{false,
             fmt::format("the run has parallel.data={}, share_memory={}, {}", facts.strategy,
                         facts.shares_memory, base::counted(facts.ranks, "rank")),
             "leave these keys as they are, remove the folder run, and run the script again"}};
  }
  if (auto kept = judge_kept_mesh(answers, facts)) return {*std::move(kept)};
  Judgement judgement{judge_mesh(facts)};
  const double parameters = facts.parameter_bytes / 4;
  judgement.push_back(judge_number(
      answers, {"parameters", parameters, kPadding,
                fmt::format("a group was counted to hold {:.0f} bytes of float32 parameters",
                            facts.parameter_bytes),
                "hanji plan --set model.preset=nano: its first lines"}));
  const double share = facts.optimizer_bytes / facts.fsdp;
  judgement.push_back(judge_number(
      answers,
      {"optimizer_bytes", share, kPadding,
       fmt::format("the run counted {:.0f} bytes of moments in a group of {}: {:.0f} a rank",
                   facts.optimizer_bytes, facts.fsdp, share),
       "AdamW keeps two float32 numbers a parameter, shared out over fsdp ranks"}));
  judgement.push_back(judge_number(
      answers, {"wire_bytes", facts.wire_bytes, kPadding,
                fmt::format("the run counted {:.0f} bytes a step, of all ranks", facts.wire_bytes),
                "of P bytes each rank sends 2 P (f-1) / f to gather twice, P (f-1) / f to scatter "
                "gradients, and 2 (P / f) (d-1) / d to average shards over groups; the shell "
                "divides whole numbers, so multiply first: (f-1) / f alone is 0"}));
  return judgement;
}

}  // namespace hanji::cli
