#include "hanji/report/savings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/report/replay.h"
#include "hanji/report/run_facts.h"

namespace hanji::report {
namespace {

constexpr double kFaultSeconds = 1e-4;  // Of a page from a fast disk, at least.
constexpr double kWaitsAlone = 1.5;     // Times what the next rank waits or lacks.
constexpr double kHalf = 0.5;
constexpr double kMissed = 2;    // Times the predicted transfer: less is what the plan has chosen.
constexpr size_t kMaxNamed = 3;  // Ranks in a sentence.

std::string part_of(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

class Finder {
 public:
  Finder(const RunRecords& run, const std::vector<LineParts>& lines)
      : run_(run),
        plan_(run.plan),
        parts_(plan_.times.sample_parts),
        replay_(run.plan, lines),
        means_(mean_parts(lines)),
        sum_(sum_of_steps(run).value_or(StepAccount())),
        slow_(slow_ranks(run.plan, lines)),
        step_(replay_.seconds({})) {
    std::erase_if(parts_, [](const plan::SamplePart& part) { return part.name == "read"; });
  }

  Savings find() const {
    const Saving bytes = transfer();
    Without mended{
        .data = true, .transfer = true, .stolen = true, .unevenness = true, .slow_ranks = slow_};
    const double filled = replay_.seconds(mended);
    mended.bubble = true;
    const double best = replay_.seconds(mended);
    const double planned = bytes.is_planned ? *bytes.seconds : 0;
    Savings found{.step_seconds = step_, .all = step_ - filled - planned};
    const auto keep = [&](const Saving& one) {
      if (!one.seconds || *one.seconds > 0) found.causes.push_back(one);
    };
    keep(data());
    keep(bytes);
    keep(stolen());
    if (!slow_.empty()) keep(slow_rank());
    keep(unevenness());
    if (plan_.mesh.degree("pp") > 1) keep(bubble(filled - best));
    if (plan_.config.compute.recompute) keep(recompute());
    if (plan_.micro_batch_wanted > 0) keep(small_micro_batches());
    return found;
  }

 private:
  double saved_by(const Without& without) const { return step_ - replay_.seconds(without); }

  Saving data() const {
    Saving saving{.cause = Cause::kData, .seconds = saved_by({.data = true})};
    std::vector<StepParts> by_wait = means_;
    std::ranges::stable_sort(by_wait, std::greater(), &StepParts::data);
    const bool is_one = by_wait.size() > 1 && by_wait[0].data > kWaitsAlone * by_wait[1].data;
    if (is_one) saving.ranks = {by_wait[0].rank};
    saving.where = stage_of_loading();
    const plan::DataConfig& data = plan_.config.data;
    saving.sentence = fmt::format(
        "{} for samples{}; {}", is_one ? named(saving.ranks) + " waits" : "ranks wait",
        loading_text(saving.where),
        data.workers == 0 ? "set data.workers, so that threads read ahead"
                          : fmt::format("raise data.workers, which is {}", data.workers));
    return saving;
  }

  /// What takes most of making a sample: "read", or a part that was timed for the plan; empty: not told apart.
  std::string stage_of_loading() const {
    if (!sum_.fetching || sum_.reading <= 0) return "";
    if (*sum_.fetching >= kHalf * sum_.reading) return "read";
    const plan::SamplePart* longest = plan::longest_part(parts_);
    return longest == nullptr ? "" : longest->name;
  }

  std::string loading_text(const std::string& stage) const {
    if (stage.empty()) return "";
    if (stage == "read") {
      return fmt::format(", {} of whose making is reading their bytes",
                         part_of(*sum_.fetching, sum_.reading));
    }
    double all = 0;
    for (const plan::SamplePart& part : parts_) all += part.seconds;
    const double share = plan::longest_part(parts_)->seconds / all;
    return fmt::format(", {} of whose making is {}",
                       part_of(share * (sum_.reading - *sum_.fetching), sum_.reading), stage);
  }

  Saving transfer() const {
    Saving saving{.cause = Cause::kCommunication, .seconds = saved_by({.transfer = true})};
    const AxisAccount* busiest = nullptr;
    for (const AxisAccount& one : sum_.axes) {
      if (!one.exposed_transfer) continue;
      if (busiest == nullptr || *one.exposed_transfer > *busiest->exposed_transfer) busiest = &one;
    }
    saving.is_planned = *saving.seconds < kMissed * plan_.predicted.exposed_transfer_seconds;
    saving.sentence = "bytes move while nothing is computed";
    if (busiest == nullptr || busiest->calls == 0) return saving;
    saving.where = busiest->axis;
    const int64_t bytes = busiest->bytes / busiest->calls;
    const double latency = latency_share(ranks_of(busiest->axis), bytes);
    const auto calls = static_cast<double>(busiest->calls) / static_cast<double>(sum_.steps);
    saving.sentence = fmt::format(
        "bytes move on the axis {} while nothing is computed, in {:.3g} calls of {} a step, which "
        "{}",
        busiest->axis, calls, base::format_bytes(bytes),
        latency >= kHalf ? fmt::format("latency bounds: so small a call takes {} of its time",
                                       part_of(latency, 1))
                         : "bandwidth bounds");
    if (latency >= kHalf && busiest->axis == "data") saving.sentence += "; raise comm.bucket_bytes";
    return saving;
  }

  int ranks_of(const std::string& axis) const {
    const int degree = plan_.mesh.degree(axis);
    return degree > 1 ? degree : static_cast<int>(plan_.shares.size());
  }

  /// The share of what a call of so many bytes takes that one of a few would take as well.
  double latency_share(int ranks, int64_t bytes) const {
    if (ranks < 2 || bytes < 1) return 0;
    const plan::Link& link = plan_.hosts.link;
    if (plan_.hosts.several() && link.bytes_per_second > 0) {
      const double moving = static_cast<double>(bytes) / ranks / link.bytes_per_second;
      return link.latency_seconds / (link.latency_seconds + moving);
    }
    cost::Chooser chooser(plan_.rates);
    const auto seconds = [&](int64_t count) {
      return cost::price_seconds({.routine = schedule::Routine::kAllReduce,
                                  .element_bytes = 4,
                                  .ranks = ranks,
                                  .count = count,
                                  .dtype = base::DType::kFloat32},
                                 chooser);
    };
    const double whole = seconds(std::max<int64_t>(1, bytes / 4));
    return whole > 0 ? seconds(1) / whole : 0;
  }

  Saving stolen() const {
    std::vector<StepParts> by_loss = means_;
    std::ranges::stable_sort(by_loss, std::greater(), stolen_seconds);
    const StepParts& worst = by_loss[0];
    if (stolen_seconds(worst) == 0) return {.seconds = 0};
    Saving saving{.cause = Cause::kStolenTime, .seconds = saved_by({.stolen = true})};
    const double lacks = worst.compute - worst.cpu;
    // Where all lose alike, no rank is to be looked at.
    const bool is_one =
        by_loss.size() == 1 || stolen_seconds(worst) > kWaitsAlone * stolen_seconds(by_loss[1]);
    if (is_one) saving.ranks = {worst.rank};
    const std::string who = is_one ? named(saving.ranks) : "ranks";
    if (worst.faults * kFaultSeconds >= kHalf * lacks) {
      saving.cause = Cause::kMemory;
      saving.where = "paging";
      saving.sentence =
          fmt::format("{} for {:.0f} pages a step that come from a disk; give {} more memory",
                      who + (is_one ? " waits" : " wait"), worst.faults, is_one ? "it" : "them");
      return saving;
    }
    saving.sentence = fmt::format(
        "{} had {} less CPU time a step than {} computed: other processes, or more ranks than "
        "cores, took it",
        who, base::format_seconds(lacks), is_one ? "it" : "they");
    return saving;
  }

  Saving slow_rank() const {
    Saving saving{.cause = Cause::kSlowRank, .seconds = saved_by({.slow_ranks = slow_})};
    for (const SlowRank& one : slow_) saving.ranks.push_back(means_[one.index].rank);
    saving.where = awaited_in(saving.ranks[0]);
    saving.sentence = fmt::format(
        "{} {:.1f} % longer than the others{}", named(saving.ranks) + computes(saving.ranks.size()),
        100 * slow_[0].excess,
        saving.where.empty() ? "" : fmt::format(", which wait for it in {}", saving.where));
    return saving;
  }

  static std::string computes(size_t ranks) { return ranks == 1 ? " computes" : " compute up to"; }

  /// The routine in which the others wait longest for `rank`; empty: none was recorded.
  std::string awaited_in(int rank) const {
    std::map<std::string, double> seconds;
    for (const WaitFacts& one : longest_waits(run_, std::numeric_limits<size_t>::max())) {
      if (one.awaited == rank && !one.routine.empty()) seconds[one.routine] += one.seconds;
    }
    const auto most = std::ranges::max_element(
        seconds, {}, [](const auto& of_routine) { return of_routine.second; });
    return most == seconds.end() ? "" : most->first;
  }

  Saving unevenness() const {
    Saving saving{.cause = Cause::kUnevenShares, .seconds = saved_by({.unevenness = true})};
    const std::vector<double> work = planned_work(plan_);
    const size_t most = std::ranges::max_element(work) - work.begin();
    saving.ranks = {static_cast<int>(most)};
    const auto samples = [](const plan::DataShare& share) { return share.samples.size(); };
    const int64_t least = samples(std::ranges::min(plan_.shares, {}, samples));
    const int64_t own = samples(plan::share_of(plan_, static_cast<int>(most)));
    if (own > least) {
      saving.sentence = fmt::format(
          "{} has {} of a step where others have {}; make train.global_batch a multiple of the "
          "ranks, or leave train.split out",
          named(saving.ranks), base::counted(own, "sample"), least);
      return saving;
    }
    saving.cause = Cause::kUnevenStages;
    saving.where = "pp";
    saving.sentence = fmt::format(
        "the stage of {} has {:.2f} times the mean work of a stage; leave pipeline.cut out, or "
        "give it fewer layers",
        named(saving.ranks), work[most]);
    return saving;
  }

  Saving bubble(double seconds) const {
    return {.cause = Cause::kBubble,
            .where = "pp",
            .seconds = seconds,
            .sentence = fmt::format(
                "the pipeline is filled and drained in every step of {} micro-batches; raise "
                "pipeline.micro_batches, or take another pipeline.schedule",
                plan_.shares[0].num_micro_batches),
            .is_planned = true};
  }

  double repeated() const {
    if (!plan_.config.compute.recompute || sum_.steps == 0) return 0;
    return sum_.forward / static_cast<double>(sum_.steps);
  }

  Saving recompute() const {
    return {.cause = Cause::kMemory,
            .where = "recompute",
            .seconds = repeated(),
            .sentence =
                "forwards are computed twice to save memory; with more of it, or more shards, "
                "leave compute.recompute out",
            .is_planned = true};
  }

  Saving small_micro_batches() const {
    return {.cause = Cause::kMemory,
            .where = "micro_batch",
            .sentence = fmt::format(
                "memory holds micro-batches of {} where {} would be taken; give the ranks more "
                "memory, or shard their state",
                plan_.micro_batch, plan_.micro_batch_wanted),
            .is_planned = true};
  }

  std::string named(const std::vector<int>& ranks) const {
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(layout::name_rank(plan_.mesh, rank));
    const size_t more = names.size() - std::min(names.size(), kMaxNamed);
    names.resize(names.size() - more);
    return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(names, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }

  const RunRecords& run_;
  const plan::Plan& plan_;
  std::vector<plan::SamplePart> parts_;  ///< Parts of making a sample whose bytes are there.
  Replay replay_;
  std::vector<StepParts> means_;
  StepAccount sum_;
  std::vector<SlowRank> slow_;
  double step_;
};

}  // namespace

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, 11> kNames = {
      "not_measured",  "compute",       "nothing", "data",   "communication", "slow_rank",
      "uneven_shares", "uneven_stages", "bubble",  "memory", "stolen_time"};
  return kNames[static_cast<size_t>(cause)];
}

Savings savings_of(const RunRecords& run, const std::vector<LineParts>& lines) {
  return Finder(run, lines).find();
}

}  // namespace hanji::report
