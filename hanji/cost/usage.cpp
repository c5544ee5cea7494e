#include "hanji/cost/usage.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hanji/schedule/staging.h"

namespace hanji::cost {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Routine;
using schedule::Step;
using schedule::StepKind;
using schedule::StepList;

// Input and output of a rank are the same memory.
bool is_in_place(Routine routine) {
  return routine == Routine::kAllReduce || routine == Routine::kBroadcast ||
         routine == Routine::kReduce;
}

// Bytes of one kind: of tensors, and of staging.
struct Split {
  double tensor = 0;
  double staging = 0;

  double& of(Place place) { return is_tensor(place) ? tensor : staging; }
  double sum() const { return tensor + staging; }
  void add_share(const Split& other, double share) {
    tensor += other.tensor * share;
    staging += other.staging * share;
  }
};

// What one rank does between two meetings.
struct Work {
  Split read, write, update, pass, claim, combine;
  double steps = 0;

  double touched() const { return read.sum() + write.sum() + 2 * update.sum(); }
  void add_share(const Work& other, double share) {
    read.add_share(other.read, share);
    write.add_share(other.write, share);
    update.add_share(other.update, share);
    pass.add_share(other.pass, share);
    claim.add_share(other.claim, share);
    combine.add_share(other.combine, share);
    steps += other.steps * share;
  }
};

class Counter {
 public:
  Counter(const StepList& list, const Element& element)
      : in_place_(is_in_place(list.routine) || list.algorithm == "swap"),
        width_(static_cast<double>(element.bytes)) {}

  void add(Work& work, const Step& step, int rank) const {
    const double bytes = static_cast<double>(step.count) * width_;
    if (step.count == 0) return;
    if (step.kind == StepKind::kCopy && step.to.size() == 1 && same(step.from[0], step.to[0])) {
      return;  // the engine leaves it alone
    }
    work.steps += 1;
    const bool reduces = step.kind == StepKind::kReduce;
    bool reads_tensor = false;
    for (const Operand& from : step.from) {
      reads_tensor |= is_tensor(from.place);
      if (reduces && is_among(from, step.to)) continue;  // updated in place, below
      work.read.of(from.place) += bytes;
      if (!is_tensor(from.place) && from.rank != rank) work.pass.of(from.place) += bytes;
    }
    for (const Operand& to : step.to) {
      const bool is_source = is_among(to, step.from);
      if (is_source && !reduces) continue;  // a copy leaves it alone
      (is_source ? work.update : work.write).of(to.place) += bytes;
      if (!is_tensor(to.place)) work.claim.of(to.place) += bytes;
    }
    if (!reduces) return;
    const double combined = bytes * static_cast<double>(step.from.size() - 1);
    (reads_tensor ? work.combine.tensor : work.combine.staging) += combined;
  }

 private:
  bool same(const Operand& a, const Operand& b) const {
    const bool places =
        a.place == b.place || (in_place_ && is_tensor(a.place) && is_tensor(b.place));
    return places && a.rank == b.rank && a.begin == b.begin && a.part == b.part;
  }
  bool is_among(const Operand& one, const std::vector<Operand>& all) const {
    return std::ranges::any_of(all, [&](const Operand& other) { return same(one, other); });
  }

  bool in_place_;
  double width_;
};

// work[epoch][rank]; the last epoch and the first are one.
std::vector<std::vector<Work>> epochs_of(const StepList& list, const Element& element) {
  const Counter counter(list, element);
  const size_t num_epochs = static_cast<size_t>(std::max(1, schedule::num_syncs(list)));
  std::vector<std::vector<Work>> epochs(num_epochs, std::vector<Work>(list.per_rank.size()));
  for (size_t rank = 0; rank < list.per_rank.size(); ++rank) {
    size_t epoch = 0;
    for (const Step& step : list.per_rank[rank]) {
      if (step.kind == StepKind::kSync) {
        epoch = (epoch + 1) % num_epochs;
      } else {
        counter.add(epochs[epoch][rank], step, static_cast<int>(rank));
      }
    }
  }
  return epochs;
}

// Adds quantities to the unknowns of the levels around a working set.
class Levels {
 public:
  explicit Levels(double bytes) {
    const double at = std::log2(std::max(bytes, 1.0));
    while (upper_ < kLevelBytes.size() && log_of(upper_) < at) ++upper_;
    if (upper_ == 0 || upper_ == kLevelBytes.size()) {
      upper_ = std::min(upper_, kLevelBytes.size() - 1);
      share_ = 1;
      return;
    }
    share_ = (at - log_of(upper_ - 1)) / (log_of(upper_) - log_of(upper_ - 1));
  }

  double price(const std::vector<double>& prices, size_t unknown) const {
    const double above = prices[index(upper_, unknown)];
    return share_ < 1 ? share_ * above + (1 - share_) * prices[index(upper_ - 1, unknown)] : above;
  }

  void add(std::vector<double>& usage, size_t unknown, double quantity) const {
    usage[index(upper_, unknown)] += quantity * share_;
    if (share_ < 1) usage[index(upper_ - 1, unknown)] += quantity * (1 - share_);
  }

 private:
  static double log_of(size_t level) { return std::log2(static_cast<double>(kLevelBytes[level])); }
  static size_t index(size_t level, size_t unknown) {
    return kCommonUnknowns + level * kLevelUnknowns + unknown;
  }

  size_t upper_ = 0;
  double share_ = 1;  // of the upper level
};

// Staging that a call uses: double-buffered, and results if there are any.
double staging_bytes(const StepList& list, const Element& element) {
  bool has_results = false;
  for (const auto& steps : list.per_rank) {
    for (const Step& step : steps) {
      has_results |= std::ranges::any_of(
          step.to, [](const Operand& to) { return to.place == Place::kResult; });
    }
  }
  return 2.0 * (has_results ? 2 : 1) * list.ranks * static_cast<double>(list.slot_elements) *
         static_cast<double>(element.bytes);
}

// Sums up what the busiest of each epoch uses.
class Usage {
 public:
  Usage(const StepList& list, const Element& element, const FittedCosts& costs)
      : list_(list),
        element_(element),
        prices_(unknowns_of(costs)),
        processors_(std::min<double>(costs.processors, list.ranks)),
        tensors_(tensor_bytes(list, element) + staging_bytes(list, element)),
        staging_(staging_bytes(list, element)) {
    for (size_t unknown = 0; unknown < kLevelUnknowns; ++unknown) {
      tensor_prices_[unknown] = tensors_.price(prices_, unknown);
      staging_prices_[unknown] = staging_.price(prices_, unknown);
    }
  }

  std::vector<double> sum() const {
    std::vector<double> usage(kUnknowns);
    usage[0] = 1;
    usage[1] = schedule::num_syncs(list_);
    for (const std::vector<Work>& ranks : epochs_of(list_, element_)) add_epoch(usage, ranks);
    return usage;
  }

 private:
  void add_epoch(std::vector<double>& usage, const std::vector<Work>& ranks) const {
    const Work work = busiest_of(ranks);
    double all = 0;
    bool waits = false, moves = false;
    for (const Work& one : ranks) {
      all += one.touched();
      (one.touched() > 0 ? moves : waits) = true;
    }
    add_work(usage, work);
    usage[3] += waits && moves ? 1 : 0;
    if (processors_ > 1) tensors_.add(usage, 5, std::max(0.0, all - work.touched()));
  }

  void add_work(std::vector<double>& usage, const Work& work) const {
    const auto add = [&](size_t unknown, const Split& bytes) {
      tensors_.add(usage, unknown, bytes.tensor);
      staging_.add(usage, unknown, bytes.staging);
    };
    usage[2] += work.steps;
    add(0, work.read);
    add(1, work.write);
    add(2, work.update);
    add(3, work.pass);
    add(4, work.claim);
    add(6 + fitted_type(element_), work.combine);
  }

  double seconds_of(const Work& work) const {
    const auto of = [&](size_t unknown, const Split& bytes) {
      return bytes.tensor * tensor_prices_[unknown] + bytes.staging * staging_prices_[unknown];
    };
    return work.steps * prices_[2] + of(0, work.read) + of(1, work.write) + of(2, work.update) +
           of(3, work.pass) + of(4, work.claim) + of(6 + fitted_type(element_), work.combine);
  }

  // What the processor that has most to do does: the busiest rank alone, or its share of all.
  Work busiest_of(const std::vector<Work>& ranks) const {
    const Work* most = &ranks[0];
    double longest = -1, all = 0;
    for (const Work& one : ranks) {
      const double seconds = seconds_of(one);
      all += seconds;
      if (seconds <= longest) continue;
      longest = seconds;
      most = &one;
    }
    if (all <= longest * processors_) return *most;
    Work work;
    for (const Work& one : ranks) work.add_share(one, 1 / processors_);
    return work;
  }

  const StepList& list_;
  const Element& element_;
  std::vector<double> prices_;
  double processors_;
  Levels tensors_;
  Levels staging_;
  std::array<double, kLevelUnknowns> tensor_prices_ = {};  // of a unit at the working set's level
  std::array<double, kLevelUnknowns> staging_prices_ = {};
};

}  // namespace

double tensor_bytes(const StepList& list, const Element& element) {
  const bool one_buffer = is_in_place(list.routine) || list.algorithm == "swap";
  double elements = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const auto input = static_cast<double>(schedule::elements_of(list, rank, Place::kInput));
    const auto output = static_cast<double>(schedule::elements_of(list, rank, Place::kOutput));
    elements += one_buffer ? std::max(input, output) : input + output;
  }
  return elements * static_cast<double>(element.bytes);
}

FittedCosts assumed_costs(int ranks, int processors) {
  FittedCosts costs;
  costs.ranks = ranks;
  costs.processors = processors;
  costs.call_seconds = costs.sync_seconds = 3e-7;
  costs.step_seconds = 1e-8;
  for (Level& level : costs.levels) {
    level = {.read = 2e-11, .write = 2e-11, .update = 3e-11, .pass = 5e-11, .claim = 5e-11};
    level.combine.fill(1e-11);
  }
  return costs;
}

std::vector<double> usage_of(const StepList& list, const Element& element,
                             const FittedCosts& costs) {
  return Usage(list, element, costs).sum();
}

}  // namespace hanji::cost
