#pragma once

#include <cstdint>
#include <vector>

#include "hanji/data/source.h"
#include "hanji/plan/choices.h"

namespace hanji::data {

struct PairOptions {
  uint64_t seed = 1;
  plan::Pairs task = plan::Pairs::kContacts;
  int64_t residues = 24;             ///< Or nodes of a graph: N.
  int64_t sequences = 64;            ///< Of kContacts: S.
  int64_t count = 20000;             ///< Of both parts.
  double validation_fraction = 0.1;  ///< The last part, in [0, 1).
};

/// Systems of N residues with a class for every pair, made when they are asked for: something to learn
/// for models of pairs without a file.
///
/// kContacts  a random set of at most N contacts, each with couplings between the states of its residues:
///            of those that pair, as bases do, and random ones; and S sequences of four states, sampled
///            from that Potts model by Gibbs sampling. Inputs [S, N]; class 1 where two residues are in
///            contact. Direct coupling analysis, as for proteins and RNA.
/// kPaths     a connected random graph with edges of length 1 to 3. Inputs [N, N]: the length of an edge, 0
///            without one; the class is the length of the shortest path, 15 for all from there.
/// kDistances a chain in space, a persistent random walk. Inputs [N, N]: 1 + the class of a known distance, which
///            neighbours and a quarter of the others have, else 0; the class is the distance in bins of 3 angstrom,
///            14 for all from there. Neither coordinates nor places along the chain are given.
/// Shape   inputs int64, targets [N, N] int64, symmetric.
/// Result  sample i depends on (seed, i), the task and its sizes alone; the validation part goes on
///         counting where the training part ends.
/// Cost    no memory; of the default sizes about 1 ms and 0.1 ms a sample.
class GeneratedPairs final : public Source {
 public:
  /// Errors  kInvalidArgument for fewer than 8 or more than 4096 residues, fewer than 2 sequences, or one sample in each
  ///         part.
  static Result<GeneratedPairs> create(const PairOptions& options);

  int64_t count(Part part) const override;
  SampleShape shape() const override;
  Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const override;
  uint64_t checksum() const override;
  /// kContacts: the precision of covariances, norms of their blocks corrected by the average product (APC), which
  /// is what coevolution was read from before networks. kPaths: the accuracy of the likeliest class by the
  /// edge alone. kDistances: that of the middle between the bounds that the triangle inequality gives.
  std::optional<Baseline> baseline() const override;

  int64_t classes() const;

 private:
  explicit GeneratedPairs(const PairOptions& options) : options_(options) {}

  void draw(int64_t sample, int64_t* inputs, int64_t* targets) const;

  PairOptions options_;
};

}  // namespace hanji::data
