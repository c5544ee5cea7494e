#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hanji/compute/dropout.h"
#include "hanji/layers/flow.h"
#include "hanji/parallel/axial/row_blocks.h"
#include "hanji/parallel/axial/triangle.h"

/// The parts of an Evoformer, each on the rows that a rank has (parallel/axial). Activations are [B, rows,
/// columns, channels]: of sequences S by residues N, or of pairs N by N.
///
/// Source  Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 2021,
///         supplement, algorithms 6 to 15; parameters are named as in OpenFold.
namespace hanji::models::evoformer {

using parallel::axial::Columns;
using parallel::axial::Full;
using parallel::axial::Places;
using parallel::axial::Rows;
using parallel::axial::Typed;

/// The widths of a block, of which AlphaFold's proportions make all others.
struct Widths {
  int64_t pair = 128;   ///< Channels of a pair; a sequence's residue has twice as many.
  int64_t heads = 4;    ///< Of triangle attention; attention over sequences has twice as many.
  bool has_msa = true;  ///< Else pairs alone: algorithms 11 to 15.
  bool has_attention = true;  ///< Triangle attention, algorithms 13 and 14.
  int64_t chunk_bytes = 0;    ///< EvoformerOptions::chunk_bytes.

  int64_t msa() const { return 2 * pair; }
  int64_t head() const { return pair / heads; }
};

/// How the elements of a parameter are drawn.
enum class Initial : uint8_t { kLecun, kHe, kGlorot, kNormal, kGate, kZero };

struct Linear {
  at::Tensor weight, bias;  ///< [outputs, inputs]; bias may be undefined.
  /// In the dtype of x, into which the weight is cast.
  at::Tensor operator()(const at::Tensor& x) const;
};

struct Norm {
  at::Tensor weight, bias;
  at::ScalarType type = at::kFloat;  ///< Of what it gives, which layers compute with.
  at::Tensor operator()(const at::Tensor& x) const;
};

/// A module under construction: registers parameters and fills them by (seed, full name, element).
class Builder {
 public:
  /// Of the root, which outlives this; `compute`: the dtype of Norm::type.
  Builder(torch::nn::Module& root, uint64_t seed, at::TensorOptions options, at::ScalarType compute)
      : module_(std::shared_ptr<torch::nn::Module>(), &root),
        seed_(seed),
        options_(options),
        compute_(compute) {}
  /// Registers nothing, and takes these tensors, in the order in which a part registers its parameters.
  Builder(std::vector<at::Tensor> parameters, at::ScalarType compute)
      : compute_(compute), given_(std::make_shared<Given>(Given{std::move(parameters)})) {}

  Builder child(const std::string& name) const;
  Linear linear(const std::string& name, int64_t outputs, int64_t inputs,
                Initial initial = Initial::kLecun, bool has_bias = true) const;
  Norm norm(const std::string& name, int64_t width) const;
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

 private:
  struct Given {
    std::vector<at::Tensor> tensors;
    size_t next = 0;
    at::Tensor take() { return tensors.at(next++); }
  };

  std::shared_ptr<torch::nn::Module> module_ = {};
  uint64_t seed_ = 0;
  at::TensorOptions options_ = {};
  at::ScalarType compute_ = at::kFloat;
  std::string path_ = {};
  std::shared_ptr<Given> given_ = {};  ///< Null: it registers.
};

/// 1 where an element is there, else 0. Whole on every rank.
struct Masks {
  at::Tensor msa;   ///< [B, S, N]; undefined without sequences.
  at::Tensor pair;  ///< [B, N, N]
};

/// The masks of one layer. A probability of 0 drops nothing.
struct Dropout {
  /// Of pairs; row attention over sequences drops 0.6 of it: AlphaFold's 0.15 of 0.25.
  double probability = 0;
  compute::DropoutKey key = {};
};

struct GatedAttention {
  int64_t heads = 1;
  int64_t chunk_bytes = 0;
  Linear query, key, value, gate, out;

  /// Attention along the columns of each row.
  ///
  /// Shape   x [B, R, L, C], bias [B, L, L, heads] of all ranks, mask [B, R, L] -> [B, R, L, C].
  Typed<Rows> operator()(const Typed<Rows>& x, const Typed<Full>& bias,
                         const at::Tensor& mask) const;
  Typed<Rows> operator()(const Typed<Rows>& x, const at::Tensor& mask) const;

 private:
  at::Tensor attend(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& mask) const;
};

/// Algorithm 7.
struct RowAttention {
  Norm norm_m, norm_z;
  Linear bias;
  GatedAttention attention;
};

/// Algorithm 8.
struct ColumnAttention {
  Norm norm;
  GatedAttention attention;
};

/// Algorithms 9 and 15.
struct Transition {
  Norm norm;
  Linear up, down;
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& mask) const;
};

/// Algorithm 10: m [B, S, rows, 2C] and the projections b of all residues -> [B, rows, N, C].
struct OuterProductMean {
  int64_t chunk_bytes = 0;
  Norm norm;
  Linear a, b, out;
  /// `mask` in a dtype that counts sequences exactly, which is the result's too.
  at::Tensor operator()(const at::Tensor& left, const Typed<Full>& right, const at::Tensor& mask,
                        layout::Range rows) const;
};

/// Algorithms 11 (outgoing) and 12.
struct TriangleMultiplication {
  bool is_outgoing = true;
  Norm norm_in, norm_out;
  Linear a, a_gate, b, b_gate, gate, out;
};

/// Algorithm 13, and of a transposed z algorithm 14.
struct TriangleAttention {
  Norm norm;
  Linear bias;
  GatedAttention attention;
};

/// The parameters of algorithms 7 to 15.
struct Block {
  Block(const Builder& builder, const Widths& widths);

  RowAttention row;
  ColumnAttention column;
  Transition msa_transition;
  OuterProductMean outer;
  TriangleMultiplication outgoing, incoming;
  TriangleAttention start, end;
  Transition pair_transition;
};

/// What algorithms 7 to 15 read besides activations.
struct BlockInputs {
  const Widths& widths;
  const Masks& masks;
  const Dropout& dropout;
  const Places& places;
};

/// Algorithms 7 to 15 in order, each added to what it reads. Sums are those of the flow's dtype; what is added is
/// computed in that of the norms, and travels in it; the flow itself travels as it is.
///
/// Shape   `flow` has m [B, S, N, 2C] where there are sequences, then z [B, N, N, C]: this rank's rows of
///         both. `blocks`: the same parameters, once for each block of rows of this rank.
layers::Flow run_block(const std::vector<Block>& blocks, layers::Flow flow,
                       const BlockInputs& inputs);

}  // namespace hanji::models::evoformer
