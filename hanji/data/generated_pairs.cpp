#include "hanji/data/generated_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/chain_distances.h"
#include "hanji/data/internal/draws.h"
#include "hanji/data/internal/generated_parts.h"

namespace hanji::data {
namespace {

constexpr int64_t kMinResidues = 8;
constexpr int64_t kMaxResidues = 4096;
constexpr uint64_t kPairDraws = 0x7061697273;  // keeps these draws apart from others of the seed
constexpr int64_t kMaxJudged = 100;            // samples by which a baseline is judged

using internal::Draws;

// Contacts.

constexpr int64_t kStates = 4;
constexpr int64_t kNearest = 3;  ///< Residues closer along the chain are in no contact.
constexpr int kSweeps = 12;
constexpr double kPairing = 1.5;    ///< Coupling of two states that pair: 0 with 3, 1 with 2.
constexpr double kDeviation = 0.5;  ///< Of all couplings of a contact, besides.

using Couplings = std::array<double, kStates * kStates>;

struct Contact {
  int64_t other;
  Couplings couplings;  ///< By the other's state, then the own.
};

/// Of each residue.
using Potts = std::vector<std::vector<Contact>>;

void add_contact(Potts& model, int64_t i, int64_t j, Draws& draws) {
  Couplings here, there;
  for (int64_t a = 0; a < kStates; ++a) {
    for (int64_t b = 0; b < kStates; ++b) {
      const double pairing = a + b == kStates - 1 ? kPairing : 0;
      here[b * kStates + a] = there[a * kStates + b] = pairing + kDeviation * draws.normal();
    }
  }
  model[i].push_back({j, here});
  model[j].push_back({i, there});
}

Potts draw_contacts(int64_t residues, Draws& draws, std::span<int64_t> targets) {
  Potts model(static_cast<size_t>(residues));
  for (int64_t left = residues; left > 0; --left) {
    const int64_t i = draws.below(residues), j = draws.below(residues);
    if (std::abs(i - j) < kNearest || targets[i * residues + j] == 1) continue;
    targets[i * residues + j] = targets[j * residues + i] = 1;
    add_contact(model, i, j, draws);
  }
  return model;
}

/// The state of one residue, given those of its contacts.
int64_t draw_state(const std::vector<Contact>& contacts, std::span<const int64_t> states,
                   double uniform) {
  std::array<double, kStates> sums = {};
  for (const Contact& one : contacts) {
    const double* row = &one.couplings[states[one.other] * kStates];
    for (int64_t a = 0; a < kStates; ++a) sums[a] += row[a];
  }
  double total = 0;
  for (double& sum : sums) sum = total += std::exp(sum);
  const auto chosen = std::ranges::upper_bound(sums, uniform * total) - sums.begin();
  return std::min(chosen, kStates - 1);
}

void sample_sequence(const Potts& model, Draws& draws, std::span<int64_t> states) {
  for (int64_t& state : states) state = draws.below(kStates);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < states.size(); ++i) {
      states[i] = draw_state(model[i], states, draws.uniform());
    }
  }
}

/// Norms of the covariances of states, corrected by the average product, of all pairs.
/// Source  Dunn, Wahl, Gloor, Bioinformatics 24:333 (2008).
std::vector<double> covariance_scores(std::span<const int64_t> states, int64_t residues) {
  const int64_t sequences = std::ssize(states) / residues;
  const double share = 1.0 / static_cast<double>(sequences);
  const auto n = static_cast<size_t>(residues);
  std::vector<std::array<double, kStates>> single(n);
  for (size_t e = 0; e < states.size(); ++e) single[e % n][states[e]] += share;
  std::vector<double> scores(n * n), means(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      Couplings both = {};
      for (size_t s = 0; s < states.size(); s += n) {
        both[states[s + i] * kStates + states[s + j]] += share;
      }
      double square = 0;
      for (int64_t a = 0; a < kStates * kStates; ++a) {
        const double covariance = both[a] - single[i][a / kStates] * single[j][a % kStates];
        square += covariance * covariance;
      }
      scores[i * n + j] = std::sqrt(square);
      means[i] += scores[i * n + j] / static_cast<double>(n - 1);
    }
  }
  const double mean = std::reduce(means.begin(), means.end()) / static_cast<double>(n);
  for (size_t e = 0; e < scores.size(); ++e) scores[e] -= means[e / n] * means[e % n] / mean;
  return scores;
}

/// The share of true contacts among as many pairs as there are contacts, those of the highest scores.
double precision_of(const std::vector<double>& scores, std::span<const int64_t> targets,
                    int64_t residues) {
  std::vector<std::pair<double, int64_t>> pairs;
  int64_t contacts = 0, found = 0;
  for (int64_t e = 0; e < std::ssize(targets); ++e) {
    if (e / residues >= e % residues) continue;
    pairs.emplace_back(scores[e], targets[e]);
    contacts += targets[e];
  }
  std::ranges::sort(pairs, std::greater{});
  for (int64_t i = 0; i < contacts; ++i) found += pairs[i].second;
  return contacts == 0 ? 1 : static_cast<double>(found) / static_cast<double>(contacts);
}

// Paths.

constexpr int64_t kLongestEdge = 3;
constexpr int64_t kLongestPath = 15;

/// A tree and as many edges again.
void draw_graph(int64_t nodes, Draws& draws, std::span<int64_t> lengths) {
  std::vector<int64_t> order(static_cast<size_t>(nodes));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = nodes - 1; i > 0; --i) std::swap(order[i], order[draws.below(i + 1)]);
  const auto add_edge = [&](int64_t i, int64_t j) {
    const int64_t length = 1 + draws.below(kLongestEdge);
    if (i != j) lengths[i * nodes + j] = lengths[j * nodes + i] = length;
  };
  for (int64_t i = 1; i < nodes; ++i) add_edge(order[i], order[draws.below(i)]);
  for (int64_t i = 0; i < nodes / 2; ++i) {
    const int64_t from = draws.below(nodes);
    add_edge(from, draws.below(nodes));
  }
}

/// Floyd and Warshall's algorithm.
void shortest_paths(int64_t nodes, std::span<const int64_t> lengths, std::span<int64_t> paths) {
  for (int64_t e = 0; e < nodes * nodes; ++e) {
    const bool is_open = lengths[e] == 0 && e / nodes != e % nodes;
    paths[e] = is_open ? kLongestPath : lengths[e];
  }
  for (int64_t k = 0; k < nodes; ++k) {
    for (int64_t i = 0; i < nodes; ++i) {
      for (int64_t j = 0; j < nodes; ++j) {
        paths[i * nodes + j] =
            std::min(paths[i * nodes + j], paths[i * nodes + k] + paths[k * nodes + j]);
      }
    }
  }
}

/// Of paths, the class that most pairs with the same edge have.
class LikeliestByEdge {
 public:
  void count(std::span<const int64_t> edges, std::span<const int64_t> paths) {
    for (size_t e = 0; e < paths.size(); ++e) ++seen_[edges[e]][paths[e]];
  }

  double accuracy() const {
    int64_t right = 0, all = 0;
    for (const auto& [edge, times] : seen_) {
      right += *std::ranges::max_element(times);
      all += std::reduce(times.begin(), times.end());
    }
    return static_cast<double>(right) / static_cast<double>(all);
  }

 private:
  std::map<int64_t, std::array<int64_t, kLongestPath + 1>> seen_;
};

double accuracy_of(const std::vector<int64_t>& found, std::span<const int64_t> classes) {
  int64_t right = 0;
  for (size_t e = 0; e < classes.size(); ++e) right += found[e] == classes[e] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(classes.size());
}

internal::GeneratedParts parts_of(const PairOptions& options) {
  return {options.count, options.validation_fraction};
}

}  // namespace

Result<GeneratedPairs> GeneratedPairs::create(const PairOptions& options) {
  const bool fraction = options.validation_fraction >= 0 && options.validation_fraction < 1;
  const bool sequences = !plan::has_sequences(options.task) || options.sequences >= 2;
  const bool residues = options.residues >= kMinResidues && options.residues <= kMaxResidues;
  if (options.task == plan::Pairs::kNone || !residues || !sequences || !fraction) {
    return base::invalid_argument(fmt::format(
        "pairs of {} residues, {} sequences, a validation_fraction of {}: {} to {} residues, 2 "
        "sequences and a fraction in [0, 1) are needed",
        options.residues, options.sequences, options.validation_fraction, kMinResidues,
        kMaxResidues));
  }
  HANJI_RETURN_IF_ERROR(parts_of(options).check("systems", "data.systems"));
  return GeneratedPairs(options);
}

int64_t GeneratedPairs::count(Part part) const {
  const int64_t train = parts_of(options_).num_train();
  return part == Part::kTrain ? train : options_.count - train;
}

SampleShape GeneratedPairs::shape() const {
  const int64_t n = options_.residues;
  const bool sequences = plan::has_sequences(options_.task);
  return {.inputs = {sequences ? options_.sequences : n, n}, .targets = {n, n}};
}

Status GeneratedPairs::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  const int64_t sample = part == Part::kTrain ? index : count(Part::kTrain) + index;
  const auto of_row = [&](const at::Tensor& tensor) {
    return tensor.mutable_data_ptr<int64_t>() + row * (tensor.numel() / tensor.size(0));
  };
  draw(sample, of_row(batch.inputs), of_row(batch.targets));
  return {};
}

void GeneratedPairs::draw(int64_t sample, int64_t* inputs, int64_t* targets) const {
  const uint64_t key =
      base::mix(base::mix(options_.seed, kPairDraws), static_cast<uint64_t>(sample));
  Draws draws(key);
  const int64_t n = options_.residues;
  const std::span to(targets, static_cast<size_t>(n * n));
  if (!plan::has_sequences(options_.task)) {
    const std::span from(inputs, to.size());
    if (options_.task == plan::Pairs::kDistances) {
      return internal::draw_distances(n, draws, from, to);
    }
    std::ranges::fill(from, 0);
    draw_graph(n, draws, from);
    return shortest_paths(n, from, to);
  }
  std::ranges::fill(to, 0);
  const Potts model = draw_contacts(n, draws, to);
  for (int64_t s = 0; s < options_.sequences; ++s) {
    sample_sequence(model, draws, {inputs + s * n, static_cast<size_t>(n)});
  }
}

std::optional<Baseline> GeneratedPairs::baseline() const {
  const int64_t judged = std::min(kMaxJudged, count(Part::kValidation));
  if (judged == 0) return std::nullopt;
  const int64_t n = options_.residues;
  const SampleShape shapes = shape();
  std::vector<int64_t> inputs(static_cast<size_t>(shapes.inputs[0] * n)),
      targets(static_cast<size_t>(n * n));
  LikeliestByEdge likeliest;
  double sum = 0;
  for (int64_t i = 0; i < judged; ++i) {
    draw(count(Part::kTrain) + i, inputs.data(), targets.data());
    switch (options_.task) {
      case plan::Pairs::kContacts:
        sum += precision_of(covariance_scores(inputs, n), targets, n);
        break;
      case plan::Pairs::kDistances:
        sum += accuracy_of(internal::classes_between_bounds(n, inputs), targets);
        break;
      default: likeliest.count(inputs, targets);
    }
  }
  const double mean = sum / static_cast<double>(judged);
  switch (options_.task) {
    case plan::Pairs::kContacts: return Baseline{"covariance with APC", mean};
    case plan::Pairs::kDistances: return Baseline{"the middle of the triangle bounds", mean};
    default: return Baseline{"the likeliest length by the edge alone", likeliest.accuracy()};
  }
}

int64_t GeneratedPairs::classes() const {
  switch (options_.task) {
    case plan::Pairs::kContacts: return 2;
    case plan::Pairs::kDistances: return internal::kDistanceClasses;
    default: return kLongestPath + 1;
  }
}

uint64_t GeneratedPairs::checksum() const {
  const std::array<uint64_t, 5> all = {
      options_.seed, static_cast<uint64_t>(options_.task), static_cast<uint64_t>(options_.residues),
      static_cast<uint64_t>(options_.sequences), static_cast<uint64_t>(options_.count)};
  return base::xxh3(std::as_bytes(std::span(all)));
}

}  // namespace hanji::data
