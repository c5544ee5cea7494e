#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/plan/operation_times.h"
#include "hanji/schedule/operation.h"

namespace hanji::plan {

/// Bytes of a micro-batch: fixed + per_sample x its samples.
struct Amount {
  int64_t fixed = 0;
  int64_t per_sample = 0;
  int64_t of(int64_t samples) const { return fixed + per_sample * samples; }
  bool operator==(const Amount&) const = default;
};

/// A matrix product [m, k] x [k, n] of one sample, `count` times in forward and backward together.
struct Product {
  double m = 0;  ///< Rows: of a convolution the pixels of its output.
  int64_t n = 1;
  int64_t k = 1;
  double count = 3;  ///< Forward, gradient of the input, gradient of the weight.

  /// Two per multiplication and addition.
  double flops() const { return 2 * m * static_cast<double>(n) * static_cast<double>(k) * count; }
  bool operator==(const Product&) const = default;
};

/// Attention of one sample over the whole square, forward and backward.
struct AttentionFacts {
  int64_t heads = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t width = 1;     ///< Of a head.
  int64_t kv_heads = 0;  ///< Of keys and values; 0: as many as heads.
  int ring_ranks = 1;    ///< Of a ring that has the rows: each multiplies as much.

  double flops() const {
    return 12.0 * static_cast<double>(heads * rows) * static_cast<double>(columns * width) /
           ring_ranks;
  }
  bool operator==(const AttentionFacts&) const = default;
};

/// One of hanji's own operations on the rows of a sample, beside products and attention.
struct RowFacts {
  OperationKind kind = OperationKind::kNorm;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t inner = 1;  ///< As Operation::inner.
  double count = 1;
  bool operator==(const RowFacts&) const = default;
};

/// A collective that a layer of a cut model runs in each micro-batch, forward or backward.
struct LayerCall {
  schedule::Routine routine = schedule::Routine::kAllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  /// Elements, not bytes: of each rank's part where parts move; one where all have as many.
  std::vector<Amount> counts = {};
  int64_t ranks = 0;        ///< That make it; 0: all that cut the layer.
  int64_t blocks = 1;       ///< Of a tree reduction: whose partial sums it adds.
  bool is_context = false;  ///< Of the ranks of cp, else of those of tp or axial.
  bool operator==(const LayerCall&) const = default;
};

/// What one layer of a model asks for in training, per sample unless said otherwise.
struct LayerFacts {
  std::string name;
  std::vector<Product> products = {};
  std::optional<AttentionFacts> attention = {};
  std::vector<RowFacts> rows = {};  ///< Where the family names them; they are in the bytes below.
  double elementwise_bytes = 0;     ///< Read and written by everything else, forward and backward.
  Amount kept = {};                 ///< From its forward to its backward.
  Amount flow = {};                 ///< That it passes on to the next layer.
  Amount backward = {};  ///< Most that its backward holds beside all that is kept by then.
  /// In the backward of its attention, beside all that is kept by then and the kernel's scratch. Not in
  /// JSON: facts that were counted have both in `backward`.
  std::optional<Amount> in_attention = {};
  /// Kept from backward_input to backward_weight, where its products can be split so: what the gradients
  /// of weights are computed of, and the gradients of its other parameters.
  std::optional<Amount> for_weights = {};
  bool is_repeated = false;           ///< By recomputation: its forward runs twice.
  std::vector<LayerCall> calls = {};  ///< Over the ranks that cut it, in order.
  std::vector<Amount> copied = {};    ///< Elements, by those of the calls that copy beside.
  std::vector<int64_t> tied = {};     ///< Parameters of earlier layers that it reads, by index.

  double product_flops() const;
  bool operator==(const LayerFacts&) const = default;
};

/// A parameter in the order of registration.
struct ParameterFacts {
  int64_t elements = 0;  ///< On the rank that has most of it.
  int64_t layer = 0;
  std::vector<int64_t> parts = {};   ///< On each rank that cuts it; empty: whole on all.
  std::vector<int64_t> blocks = {};  ///< Of each block of features; empty: it is in none.
  bool is_copied = false;  ///< Of a stage: ranks of other stages have it too. Not in JSON.
  bool operator==(const ParameterFacts&) const = default;
};

/// A model as the planner sees it: layers, and what they hold. Of a cut model what the rank that has
/// most of it holds. Memory, time and "does it fit" are
/// sums and maxima over it.
struct ModelFacts {
  std::vector<LayerFacts> layers = {};
  std::vector<ParameterFacts> parameters = {};
  int64_t targets_per_sample = 1;  ///< Tokens of a sample, or one class of an image.
  int64_t sample_bytes = 0;        ///< Of a sample's inputs and targets.
  int64_t num_statistics = 0;      ///< Numbers that every step moves its buffers by.
  int64_t buffer_bytes = 0;
  /// Backward writes gradients where they are reduced, else into tensors of their own first: so do
  /// models whose facts were counted, and their JSON does not mention it.
  bool has_gradient_slots = false;

  std::vector<int64_t> parameter_sizes() const;
  /// As rank `index` of those that cut the model has them.
  ModelFacts part(int index) const;
  /// Elements of what layers read again after an earlier one: a tied weight, once for each later use.
  std::vector<int64_t> tied_sizes() const;
  int64_t num_parameters() const;
  double product_flops_per_sample() const;
  double attention_flops_per_sample() const;
  double flops_per_target() const;
  bool operator==(const ModelFacts&) const = default;
};

/// What the forward pass of so many samples keeps for the backward pass.
int64_t activation_bytes(const ModelFacts& model, int64_t samples);

/// What a backward pass holds beside tensors that the facts of layers name.
struct BackwardMemory {
  int64_t attention_scratch = 0;  ///< Scratch bytes of one thread in a layer's attention.
  /// Of an element of gradients that come in tensors of their own, beside where they are added up; those
  /// of a tied weight wait for its first use. 0: they are written there.
  int64_t gradient_bytes = 0;
};

/// What the backward pass holds beside that at its highest point: layers give up what they have kept
/// from the last to the first.
int64_t workspace_bytes(const ModelFacts& model, int64_t samples,
                        const BackwardMemory& beside = {});

/// The operations of a forward and backward of so many samples, equal ones once: products,
/// attention and rows. What recomputation repeats counts as a third more.
std::vector<Operation> operations_of(const ModelFacts& model, int64_t samples);

/// The products by which kernels are measured for a model.
struct KernelShapes {
  int64_t block = 64;  ///< Rows of a sample.
  int64_t width = 64;
  int64_t heads = 1;
};
KernelShapes kernel_shapes(const ModelFacts& model);

/// As a plan keeps facts that were counted; strict, errors are kCorrupt and name the member.
std::string facts_to_json(const ModelFacts& facts);
Result<ModelFacts> facts_from_json(std::string_view text);

}  // namespace hanji::plan
