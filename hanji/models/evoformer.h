#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/layers/model.h"
#include "hanji/layout/axial.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::axial {
struct Places;
}

namespace hanji::models {

struct EvoformerOptions {
  int64_t blocks = 48;
  int64_t width = 128;  ///< Channels of a pair; a residue of a sequence has twice as many.
  int64_t heads = 4;    ///< Of triangle attention; attention over sequences has twice as many.
  int64_t classes = 2;  ///< Of a pair: what the head tells apart.
  bool has_msa = true;  ///< Sequences beside pairs: an Evoformer. Else pairs alone: a Pairformer.
  bool has_attention = true;  ///< Triangle attention. Without it and sequences: a Pairmixer.
  double dropout = 0.0;       ///< Of pair updates; row attention drops 0.6 of it. AlphaFold: 0.25.
  uint64_t seed = 1;          ///< Of the initial values.
  /// kBFloat16: of what blocks compute and exchange; parameters, the flow, embedding and head are float32.
  base::Precision dtype = base::Precision::kFloat32;
  c10::Device device = c10::kCPU;
  /// Cuts sequences and pairs by rows, as parallel/axial says; parts may be uneven. Parameters are whole.
  /// In blocks (Axis::in_blocks) rows are computed in as many blocks, and no bit depends on the degree.
  parallel::tensor::Axis axis = {};
  layout::TriangleWay triangle = layout::TriangleWay::kChannels;
  /// Most that the logits of an attention, or an outer product before its projection, take: they are computed for
  /// as many rows at a time as fit, at least one, and again in backward. 0: for all rows at once, and kept. An
  /// output is the same, bit for bit; gradients of what all rows share are added up by chunks.
  int64_t chunk_bytes = 0;
};

/// AlphaFold 2's Evoformer between an embedding and a head that classifies every pair of residues: of
/// 48 blocks, 128 wide, exactly the published stack.
///
/// Layers  the embedding; each block; the head. The flow is m [B, S, N, 2 width] where there are
///         sequences, then z [B, N, N, width]; on an axis of several ranks this rank's rows of both.
/// Order   on an axis of several ranks, layers, their backward and the metric are collectives of it. Each rank
///         has a term of each parameter's gradient; on an axis in blocks all have the same whole one.
/// Result  parameters have the names of OpenFold's checkpoints. Initial values are those of AlphaFold and
///         depend only on (seed, parameter name, element); every output layer begins with zeros. Masks of
///         dropout depend on (seed, step, sample, block, element) alone.
/// Source  Jumper et al., Nature 596:583 (2021), supplement, algorithms 6 to 15; pairs alone: Abramson et
///         al., Nature 630:493 (2024), algorithm 17 without its single representation, which no loss here
///         reads; without attention: arXiv:2510.18870.
class EvoformerImpl : public layers::Model {
 public:
  /// States of a residue in a sequence, and of the input of a pair.
  static constexpr int64_t kResidueStates = 23;
  static constexpr int64_t kPairStates = 16;

  /// Errors  throws kInvalidArgument for sizes below 1, fewer than 2 classes, width not a multiple of
  ///         heads, dropout outside [0, 1).
  explicit EvoformerImpl(const EvoformerOptions& options);
  ~EvoformerImpl() override;

  int64_t num_layers() const override { return options_.blocks + 2; }

  /// Shape   batch.inputs int64: with sequences [B, S, N] states in [0, kResidueStates), the first
  ///         sequence that of the chain itself; without [B, N, N] states of pairs in [0, kPairStates).
  ///         Negative: masked. A residue is there if the first sequence has it. The last flow is the
  ///         logits [B, N, N, classes], the same of (i, j) and (j, i); on an axis this rank's rows. Inputs and
  ///         targets are whole on every rank.
  /// Errors  throws kInvalidArgument for fewer residues or sequences than ranks of the axis.
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override;

  std::vector<at::Tensor> layer_parameters(int64_t index) const override;

  /// Shape   batch.targets [B, N, N] int64; negative targets are ignored. On an axis the loss is that of this
  ///         rank's rows, and so is its count; in blocks it is that of all.
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override;

  layout::Range recomputed_layers() const override { return {1, num_layers() - 1}; }

  /// Of two classes the precision among as many pairs as are of class 1, those with its largest logits
  /// (i < j); else the accuracy.
  std::string_view metric_name() const override {
    return options_.classes == 2 ? "precision" : "accuracy";
  }
  double metric_sum(const layers::Flow& flow, const layers::Batch& batch) const override;

  const EvoformerOptions& options() const { return options_; }

 private:
  struct Parts;

  using Pairs = parallel::tensor::Typed<parallel::tensor::Sharded<1>>;

  parallel::axial::Places places_of(const layers::Batch& batch) const;
  template <class Part, class Make>
  std::vector<Part> of_blocks(int64_t index, const Part& whole, const Make& make) const;
  layers::Flow embed(const layers::Batch& batch, const parallel::axial::Places& places) const;
  Pairs classify(const Pairs& z, const parallel::axial::Places& places) const;

  EvoformerOptions options_;
  std::unique_ptr<Parts> parts_;
};

std::shared_ptr<layers::Model> make_evoformer(const EvoformerOptions& options);

}  // namespace hanji::models
