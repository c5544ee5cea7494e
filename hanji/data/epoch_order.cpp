#include "hanji/data/internal/epoch_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "hanji/base/random.h"
#include "hanji/data/internal/numpy_permutation.h"
#include "hanji/data/order.h"

namespace hanji::data::internal {
namespace {

// Keep these draws apart from other uses of a seed ("weights", "pages" in ASCII).
constexpr uint64_t kWeights = 0x77656967687473;
constexpr uint64_t kPages = 0x7061676573;

using Shared = std::shared_ptr<const EpochOrder>;

/// What a function makes of an epoch, kept for the two that a global batch may be in.
template <class T>
class PerEpoch {
 public:
  template <class Make>
  std::shared_ptr<const T> get(int64_t epoch, const Make& make) const {
    const std::lock_guard lock(mutex_);
    auto& [known, value] = kept_[static_cast<size_t>(epoch % 2)];
    if (known != epoch || !value) {
      value = std::make_shared<const T>(make(epoch));
      known = epoch;
    }
    return value;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::array<std::pair<int64_t, std::shared_ptr<const T>>, 2> kept_;
};

class SequentialOrder final : public EpochOrder {
 public:
  using EpochOrder::at;
  int64_t at(int64_t, int64_t place) const override { return place; }
};

class RandomOrder final : public EpochOrder {
 public:
  explicit RandomOrder(const LoaderOptions& o) : seed_(o.seed), count_(o.num_samples) {}
  int64_t at(int64_t epoch, int64_t place) const override {
    return Permutation(seed_, static_cast<uint64_t>(epoch), count_)(place);
  }
  void at(int64_t epoch, layout::Range places, int64_t* out) const override {
    Permutation(seed_, static_cast<uint64_t>(epoch), count_)(places, out);
  }

 private:
  uint64_t seed_;
  int64_t count_;
};

/// As another library's generator permutes, which draws one number after the other.
class ListedOrder final : public EpochOrder {
 public:
  using EpochOrder::at;
  explicit ListedOrder(const LoaderOptions& o)
      : order_(o.order), seed_(o.seed), count_(o.num_samples) {}

  int64_t at(int64_t epoch, int64_t place) const override {
    return (*lists_.get(epoch, [this](int64_t e) { return list(e); }))[static_cast<size_t>(place)];
  }

 private:
  std::vector<int64_t> list(int64_t epoch) const {
    const uint64_t seed = seed_ + static_cast<uint64_t>(epoch);
    if (order_ == plan::SampleOrder::kFfcv) return numpy_permutation(seed, count_);
    const at::Tensor drawn = at::randperm(count_, at::detail::createCPUGenerator(seed), at::kLong);
    const auto* numbers = drawn.const_data_ptr<int64_t>();
    return {numbers, numbers + count_};
  }

  plan::SampleOrder order_;
  uint64_t seed_;
  int64_t count_;
  PerEpoch<std::vector<int64_t>> lists_;
};

/// Pages in a random order, cut into windows, whose samples are permuted together.
class QuasiOrder final : public EpochOrder {
 public:
  using EpochOrder::at;
  explicit QuasiOrder(const LoaderOptions& o)
      : seed_(base::mix(o.seed, kPages)), window_(std::max<int64_t>(1, o.open_pages / 2)) {
    const std::vector<uint32_t>& pages = *o.pages;
    const size_t num_pages = size_t{1} + *std::ranges::max_element(pages);
    begins_.assign(num_pages + 1, 0);
    for (const uint32_t page : pages) ++begins_[page + 1];
    std::erase(begins_, 0);  // pages without training samples
    begins_.insert(begins_.begin(), 0);
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    samples_.resize(pages.size());
    std::iota(samples_.begin(), samples_.end(), 0);
    std::ranges::stable_sort(samples_, {}, [&](uint32_t sample) { return pages[sample]; });
  }

  int64_t at(int64_t epoch, int64_t place) const override {
    const auto ends = ends_.get(epoch, [this](int64_t e) { return make_ends(e); });
    const int64_t window = slot_of(*ends, place) / window_;
    const int64_t first = window * window_;
    const int64_t last = std::min(first + window_, std::ssize(*ends)) - 1;
    const int64_t begin = first == 0 ? 0 : (*ends)[first - 1];
    const uint64_t seed = base::mix(seed_, static_cast<uint64_t>(window));
    const Permutation within(seed, static_cast<uint64_t>(epoch), (*ends)[last] - begin);
    const int64_t drawn = begin + within(place - begin);
    const int64_t slot = slot_of(*ends, drawn);
    const int64_t page = pages_of(epoch)(slot);
    return samples_[begins_[page] + drawn - (slot == 0 ? 0 : (*ends)[slot - 1])];
  }

 private:
  int64_t num_pages() const { return std::ssize(begins_) - 1; }
  Permutation pages_of(int64_t epoch) const {
    return {seed_, static_cast<uint64_t>(epoch), num_pages()};
  }
  static int64_t slot_of(const std::vector<int64_t>& ends, int64_t place) {
    return std::ranges::upper_bound(ends, place) - ends.begin();
  }

  /// The number of samples up to the end of each page, in the epoch's order of pages.
  std::vector<int64_t> make_ends(int64_t epoch) const {
    const Permutation order = pages_of(epoch);
    std::vector<int64_t> ends;
    for (int64_t slot = 0; slot < num_pages(); ++slot) {
      const int64_t page = order(slot);
      ends.push_back((ends.empty() ? 0 : ends.back()) + begins_[page + 1] - begins_[page]);
    }
    return ends;
  }

  uint64_t seed_;
  int64_t window_;
  std::vector<int64_t> begins_;    // of each page in samples_
  std::vector<uint32_t> samples_;  // by page
  PerEpoch<std::vector<int64_t>> ends_;
};

/// Draws with replacement, by the alias method. Source: Vose, IEEE Trans. Softw. Eng. 17(9), 1991.
class WeightedOrder final : public EpochOrder {
 public:
  using EpochOrder::at;
  explicit WeightedOrder(const LoaderOptions& o) : seed_(base::mix(o.seed, kWeights)) {
    const std::vector<double>& weights = *o.weights;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> parts;
    for (const double weight : weights) {
      parts.push_back(weight / sum * static_cast<double>(weights.size()));
    }
    keep_.assign(parts.size(), 1);
    other_.resize(parts.size());
    std::iota(other_.begin(), other_.end(), 0);
    std::vector<uint32_t> small, large;
    for (uint32_t i = 0; i < parts.size(); ++i) (parts[i] < 1 ? small : large).push_back(i);
    while (!small.empty() && !large.empty()) {
      const uint32_t less = small.back(), more = large.back();
      small.pop_back();
      keep_[less] = parts[less];
      other_[less] = more;
      parts[more] -= 1 - parts[less];
      if (parts[more] >= 1) continue;
      large.pop_back();
      small.push_back(more);
    }
  }

  int64_t at(int64_t epoch, int64_t place) const override {
    const auto words = base::Philox::draw(base::mix(seed_, static_cast<uint64_t>(epoch)), 0,
                                          static_cast<uint64_t>(place));
    const uint64_t both = uint64_t{words[0]} << 32 | words[1];
    const auto slot =
        static_cast<size_t>(static_cast<unsigned __int128>(both) * keep_.size() >> 64);
    return base::uniform(words[2]) < keep_[slot] ? static_cast<int64_t>(slot) : other_[slot];
  }

 private:
  uint64_t seed_;
  std::vector<double> keep_;
  std::vector<uint32_t> other_;
};

Result<Shared> make_weighted(const LoaderOptions& options) {
  const std::vector<double>& weights = *options.weights;
  const bool are_weights = std::ranges::all_of(
      weights, [](double weight) { return std::isfinite(weight) && weight >= 0; });
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (are_weights && std::isfinite(sum) && sum > 0 && std::ssize(weights) == options.num_samples) {
    return Shared(std::make_shared<WeightedOrder>(options));
  }
  return base::invalid_argument(fmt::format(
      "{} weights of sum {} of {} samples: each must be finite and at least 0, and one above 0",
      weights.size(), sum, options.num_samples));
}

Result<Shared> make_quasi(const LoaderOptions& options) {
  if (!options.pages || options.pages->empty()) {
    return base::unsupported(
        "the order quasi draws samples from few pages of a file at a time, but this data is not "
        "stored in pages; set data.order = \"random\"");
  }
  if (std::ssize(*options.pages) != options.num_samples || options.open_pages < 2) {
    return base::invalid_argument(
        fmt::format("the order quasi has pages of {} samples, {} at a time, for {} samples; "
                    "at least 2 at a time are needed",
                    options.pages->size(), options.open_pages, options.num_samples));
  }
  return Shared(std::make_shared<QuasiOrder>(options));
}

}  // namespace

void EpochOrder::at(int64_t epoch, layout::Range places, int64_t* out) const {
  for (int64_t place = places.begin; place < places.end; ++place) *out++ = at(epoch, place);
}

Result<Shared> make_epoch_order(const LoaderOptions& options) {
  if (options.weights) return make_weighted(options);
  switch (options.order) {
    case plan::SampleOrder::kSequential: return Shared(std::make_shared<SequentialOrder>());
    case plan::SampleOrder::kQuasi: return make_quasi(options);
    case plan::SampleOrder::kFfcv:
    case plan::SampleOrder::kTorch: return Shared(std::make_shared<ListedOrder>(options));
    case plan::SampleOrder::kRandom: break;
  }
  return Shared(std::make_shared<RandomOrder>(options));
}

}  // namespace hanji::data::internal
