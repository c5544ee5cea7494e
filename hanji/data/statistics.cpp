#include "hanji/data/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace hanji::data {
namespace {

constexpr int64_t kBlock = 4096;

struct PairCounts {
  explicit PairCounts(int64_t vocabulary)
      : size(vocabulary), pairs(vocabulary * vocabulary), first(vocabulary), second(vocabulary) {}

  int64_t size;
  std::vector<int64_t> pairs;
  std::vector<int64_t> first;   // How often a token has a successor.
  std::vector<int64_t> second;  // How often a token is one.
  int64_t total = 0;

  void add(int64_t current, int64_t next) {
    ++pairs[current * size + next];
    ++first[current];
    ++second[next];
    ++total;
  }
};

// Calls visit(current, next) for every pair that lies within `range`.
template <class Visit>
Status for_each_pair(const TokenSource& tokens, layout::Range range, Visit visit) {
  std::array<int64_t, kBlock + 1> block;
  for (int64_t begin = range.begin; begin + 1 < range.end; begin += kBlock) {
    const int64_t count = std::min(kBlock + 1, range.end - begin);
    HANJI_RETURN_IF_ERROR(tokens.copy_tokens(begin, count, block.data()));
    for (int64_t i = 0; i + 1 < count; ++i) visit(block[i], block[i + 1]);
  }
  return {};
}

double conditional_entropy(const PairCounts& counts) {
  double sum = 0;
  for (int64_t current = 0; current < counts.size; ++current) {
    const auto row = counts.pairs.begin() + current * counts.size;
    const double log_first = std::log(static_cast<double>(counts.first[current]));
    std::for_each(row, row + counts.size, [&](int64_t pair) {
      if (pair == 0) return;
      const auto count = static_cast<double>(pair);
      sum += count * (log_first - std::log(count));
    });
  }
  return sum / static_cast<double>(counts.total);
}

// -ln P(next | current) with P = (c(current, next) + d p1(next)) / (c(current) + d), d the number
// of different successors of current, and p1 the single-token frequency plus one.
class WittenBell {
 public:
  explicit WittenBell(const PairCounts& counts) : counts_(counts), kinds_(counts.size) {
    for (int64_t current = 0; current < counts.size; ++current) {
      const auto row = counts.pairs.begin() + current * counts.size;
      kinds_[current] = counts.size - std::count(row, row + counts.size, 0);
    }
  }

  double loss(int64_t current, int64_t next) const {
    const double single = static_cast<double>(counts_.second[next] + 1) /
                          static_cast<double>(counts_.total + counts_.size);
    const auto kinds = static_cast<double>(kinds_[current]);
    if (kinds == 0) return -std::log(single);
    const auto pair = static_cast<double>(counts_.pairs[current * counts_.size + next]);
    return -std::log((pair + kinds * single) /
                     (static_cast<double>(counts_.first[current]) + kinds));
  }

 private:
  const PairCounts& counts_;
  std::vector<int64_t> kinds_;
};

}  // namespace

Result<BigramEntropy> bigram_entropy(const TokenSamples& samples, int64_t vocabulary) {
  if (vocabulary < 1 || vocabulary > kMaxBigramTokens) {
    return base::unsupported(fmt::format(
        "the entropy of pairs is a yardstick for 1 to {} token ids, and the vocabulary holds {}",
        kMaxBigramTokens, vocabulary));
  }
  const TokenSource& tokens = samples.tokens();
  if (tokens.num_tokens() < 2) {
    return base::invalid_argument("a text of one token has no pairs; bring a longer one");
  }
  HANJI_RETURN_IF_ERROR(tokens.check_vocabulary(vocabulary));

  PairCounts counts(vocabulary);
  const auto count = [&counts](int64_t current, int64_t next) { counts.add(current, next); };
  HANJI_RETURN_IF_ERROR(for_each_pair(tokens, samples.range(Part::kTrain), count));

  BigramEntropy entropy;
  const layout::Range validation = samples.range(Part::kValidation);
  if (validation.size() > 1 && counts.total > 0) {
    const WittenBell model(counts);
    HANJI_RETURN_IF_ERROR(for_each_pair(tokens, validation, [&](int64_t current, int64_t next) {
      entropy.validation_nats += model.loss(current, next);
    }));
    entropy.validation_nats /= static_cast<double>(validation.size() - 1);
  }
  // The pair that straddles the border belongs to the text too.
  const layout::Range rest = {std::max<int64_t>(validation.begin - 1, 0), validation.end};
  HANJI_RETURN_IF_ERROR(for_each_pair(tokens, rest, count));
  entropy.text_nats = conditional_entropy(counts);
  return entropy;
}

}  // namespace hanji::data
