#include "hanji/models/internal/evoformer_block.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "hanji/models/internal/initial.h"
#include "hanji/parallel/checkpointed.h"

namespace hanji::models::evoformer {
namespace {

using parallel::axial::Axis;
using parallel::axial::Edges;
using parallel::axial::Extents;
using parallel::axial::gather_for_blocks;
using parallel::axial::join;
using parallel::axial::own_blocks;
using parallel::axial::own_rows;
using parallel::axial::reshard_to;
using parallel::axial::RowBlocks;
using parallel::axial::split;
using parallel::axial::transposed;
using parallel::axial::triangle_product;

constexpr double kEpsilon = 1e-5;
constexpr double kNormEpsilon = 1e-3;  // of the number of sequences of a pair
constexpr double kMasked = 1e9;
constexpr int64_t kExpansion = 4;  // of a transition
constexpr double kMsaShare = 0.6;  // of the pairs' dropout
/// Places of a block that drop, by which their masks differ.
enum Place : int64_t { kRow, kOutgoing, kIncoming, kStart, kEnd, kNumPlaces };

void fill(at::Tensor& weight, Initial initial, uint64_t seed, const std::string& name) {
  const auto inputs = static_cast<double>(weight.size(1));
  const auto outputs = static_cast<double>(weight.size(0));
  switch (initial) {
    case Initial::kLecun: return fill_truncated_normal(weight, std::sqrt(1 / inputs), seed, name);
    case Initial::kHe: return fill_truncated_normal(weight, std::sqrt(2 / inputs), seed, name);
    case Initial::kGlorot:
      return fill_uniform(weight, std::sqrt(6 / (inputs + outputs)), seed, name);
    case Initial::kNormal: return fill_normal(weight, std::sqrt(1 / inputs), seed, name);
    case Initial::kGate:
    case Initial::kZero: weight.zero_();
  }
}

/// Triangle attention's, or with twice as many heads and channels that of sequences.
GatedAttention attention_of(const Builder& builder, const Widths& widths, int64_t times) {
  const int64_t heads = times * widths.heads, width = times * widths.pair;
  const int64_t inner = heads * widths.head();
  return {heads,
          widths.chunk_bytes,
          builder.linear("linear_q", inner, width, Initial::kGlorot, false),
          builder.linear("linear_k", inner, width, Initial::kGlorot, false),
          builder.linear("linear_v", inner, width, Initial::kGlorot, false),
          builder.linear("linear_g", inner, width, Initial::kGate),
          builder.linear("linear_o", width, inner, Initial::kZero)};
}

Transition transition_of(const Builder& builder, int64_t width) {
  return {builder.norm("layer_norm", width),
          builder.linear("linear_1", kExpansion * width, width, Initial::kHe),
          builder.linear("linear_2", width, kExpansion * width, Initial::kZero)};
}

TriangleMultiplication multiplication_of(const Builder& builder, int64_t width, bool is_outgoing) {
  return {is_outgoing,
          builder.norm("layer_norm_in", width),
          builder.norm("layer_norm_out", width),
          builder.linear("linear_a_p", width, width),
          builder.linear("linear_a_g", width, width, Initial::kGate),
          builder.linear("linear_b_p", width, width),
          builder.linear("linear_b_g", width, width, Initial::kGate),
          builder.linear("linear_g", width, width, Initial::kGate),
          builder.linear("linear_z", width, width, Initial::kZero)};
}

TriangleAttention triangle_attention_of(const Builder& builder, const Widths& widths) {
  return {builder.norm("layer_norm", widths.pair),
          builder.linear("linear", widths.heads, widths.pair, Initial::kNormal, false),
          attention_of(builder.child("mha"), widths, 1)};
}

/// Undefined tensors stay so.
at::Tensor cast(const at::Tensor& x, at::ScalarType type) {
  return !x.defined() || x.scalar_type() == type ? x : x.to(type);
}

struct Budget {
  int64_t bytes = 0;      ///< 0: any.
  int64_t row_bytes = 1;  ///< Of what one row holds beside inputs and output.
};

/// function(rows..., shared...), of which each row along dimension 1 depends on the same row of `rows` alone: in one
/// call, or where the budget does not suffice in several that keep only their inputs. What has a gradient is among
/// these, so that a chunk's backward ends with it.
template <size_t kNumRows, size_t kNumShared, class Function>
at::Tensor by_chunks(const Function& function, Budget budget,
                     const std::array<at::Tensor, kNumRows>& rows,
                     const std::array<at::Tensor, kNumShared>& shared) {
  const int64_t most = std::max<int64_t>(1, budget.bytes / std::max<int64_t>(1, budget.row_bytes));
  if (budget.bytes == 0 || most >= rows[0].size(1)) {
    return std::apply(function, std::tuple_cat(rows, shared));
  }
  std::array<std::vector<at::Tensor>, kNumRows> chunks;
  for (size_t i = 0; i < kNumRows; ++i) chunks[i] = rows[i].split(most, 1);
  const auto call = [&](const auto&... tensors) {
    return parallel::checkpointed(function, tensors...);
  };
  std::vector<at::Tensor> results;
  for (size_t chunk = 0; chunk < chunks[0].size(); ++chunk) {
    std::array<at::Tensor, kNumRows> some;
    for (size_t i = 0; i < kNumRows; ++i) some[i] = chunks[i][chunk];
    results.push_back(std::apply(call, std::tuple_cat(some, shared)));
  }
  return at::cat(results, 1);
}

/// Added to what it was computed from, with one mask for all rows, so that ranks need no part of it.
Typed<Rows> add_dropped(const Typed<Rows>& x, const Typed<Rows>& update, Place place,
                        double probability, const Dropout& dropout) {
  if (probability == 0) return x + update;
  const at::Tensor& y = update.value();
  compute::DropoutKey key = dropout.key;
  key.layer = key.layer * kNumPlaces + place;
  const at::Tensor mask = compute::dropout_mask({y.size(0), 1, y.size(2), y.size(3)}, probability,
                                                key, x.value().options());
  return Typed<Rows>(x.value() + y * mask);
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, cast(weight, x.scalar_type()), cast(bias, x.scalar_type()));
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return cast(at::layer_norm(x, {x.size(-1)}, weight, bias, kEpsilon), type);
}

Builder Builder::child(const std::string& name) const {
  Builder below = *this;
  if (given_) return below;
  below.module_ = module_->register_module(name, std::make_shared<torch::nn::Module>());
  below.path_ = path_ + name + ".";
  return below;
}

Linear Builder::linear(const std::string& name, int64_t outputs, int64_t inputs, Initial initial,
                       bool has_bias) const {
  if (given_) {
    at::Tensor weight = given_->take();
    return {std::move(weight), has_bias ? given_->take() : at::Tensor()};
  }
  const Builder own = child(name);
  const at::TensorOptions on_host = options_.device(at::kCPU);
  at::Tensor weight = at::empty({outputs, inputs}, on_host);
  fill(weight, initial, seed_, own.path_ + "weight");
  Linear linear;
  linear.weight = own.module_->register_parameter("weight", weight.to(options_.device()));
  if (!has_bias) return linear;
  const at::Tensor bias = at::full({outputs}, initial == Initial::kGate ? 1 : 0, options_);
  linear.bias = own.module_->register_parameter("bias", bias);
  return linear;
}

Norm Builder::norm(const std::string& name, int64_t width) const {
  if (given_) {
    at::Tensor weight = given_->take();
    return {std::move(weight), given_->take(), compute_};
  }
  const Builder own = child(name);
  return {own.module_->register_parameter("weight", at::ones({width}, options_)),
          own.module_->register_parameter("bias", at::zeros({width}, options_)), compute_};
}

Typed<Rows> GatedAttention::operator()(const Typed<Rows>& x, const Typed<Full>& bias,
                                       const at::Tensor& mask) const {
  return Typed<Rows>(attend(x.value(), bias.value().permute({0, 3, 1, 2}).unsqueeze(1), mask));
}

Typed<Rows> GatedAttention::operator()(const Typed<Rows>& x, const at::Tensor& mask) const {
  return Typed<Rows>(attend(x.value(), {}, mask));
}

at::Tensor GatedAttention::attend(const at::Tensor& x, const at::Tensor& bias,
                                  const at::Tensor& mask) const {
  const int64_t batch = x.size(0), rows = x.size(1), length = x.size(2);
  const int64_t inner = query.weight.size(0);
  const auto split = [&](const at::Tensor& y) {
    return y.view({batch, rows, length, heads, inner / heads}).transpose(2, 3);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(inner / heads));
  const auto attended = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& masked, const at::Tensor& shift) {
    at::Tensor logits = at::matmul(q, k.transpose(-1, -2));
    logits.add_(masked);
    if (shift.defined()) logits.add_(shift);
    return at::matmul(at::softmax(logits, -1), v);
  };
  // Gradients of x are added up in the reverse order.
  const at::Tensor keys = split(key(x)), queries = split(query(x) * scale), all = split(value(x));
  const at::Tensor hidden = ((mask - 1) * kMasked).view({batch, rows, 1, 1, length});
  const int64_t row_bytes = 2 * batch * heads * length * length * x.element_size();
  const at::Tensor values =
      by_chunks<4, 1>(attended, {chunk_bytes, row_bytes}, {queries, keys, all, hidden}, {bias});
  const at::Tensor joined = values.transpose(2, 3).reshape({batch, rows, length, inner});
  return out(at::sigmoid(gate(x)) * joined);
}

at::Tensor Transition::operator()(const at::Tensor& x, const at::Tensor& mask) const {
  return down(at::relu(up(norm(x)))) * mask.unsqueeze(-1);
}

at::Tensor OuterProductMean::operator()(const at::Tensor& left, const Typed<Full>& right,
                                        const at::Tensor& mask, layout::Range rows) const {
  const int64_t batch = left.size(0), width = a.weight.size(0), length = mask.size(2);
  const auto products = [batch, width, length](const at::Tensor& some, const at::Tensor& columns,
                                               const at::Tensor& weight, const at::Tensor& bias) {
    const Linear project{weight, bias};
    return project(at::matmul(some.flatten(1, 2), columns)
                       .view({batch, some.size(1), width, length, width})
                       .permute({0, 1, 3, 2, 4})
                       .reshape({batch, some.size(1), length, width * width}));
  };
  const int64_t row_bytes = 2 * batch * length * width * width * left.element_size();
  const at::Tensor product =
      by_chunks<1, 3>(products, {chunk_bytes, row_bytes}, {left.permute({0, 2, 3, 1})},
                      {right.value().flatten(2), out.weight, out.bias});
  const at::Tensor own_mask = mask.narrow(2, rows.begin, rows.size());
  const at::Tensor sequences = at::matmul(own_mask.transpose(1, 2), mask) + kNormEpsilon;
  return product / sequences.unsqueeze(-1);
}

Block::Block(const Builder& builder, const Widths& widths) {
  const int64_t c = widths.pair, m = widths.msa();
  if (widths.has_msa) {
    const Builder by_row = builder.child("msa_att_row");
    row = {by_row.norm("layer_norm_m", m), by_row.norm("layer_norm_z", c),
           by_row.linear("linear_z", 2 * widths.heads, c, Initial::kNormal, false),
           attention_of(by_row.child("mha"), widths, 2)};
    const Builder by_column = builder.child("msa_att_col").child("_msa_att");
    column = {by_column.norm("layer_norm_m", m), attention_of(by_column.child("mha"), widths, 2)};
    msa_transition = transition_of(builder.child("msa_transition"), m);
    const Builder mean = builder.child("outer_product_mean");
    outer = {widths.chunk_bytes, mean.norm("layer_norm", m),
             mean.linear("linear_1", widths.head(), m), mean.linear("linear_2", widths.head(), m),
             mean.linear("linear_out", c, widths.head() * widths.head(), Initial::kZero)};
  }
  const Builder pairs = builder.child("pair_stack");
  outgoing = multiplication_of(pairs.child("tri_mul_out"), c, true);
  incoming = multiplication_of(pairs.child("tri_mul_in"), c, false);
  if (widths.has_attention) {
    start = triangle_attention_of(pairs.child("tri_att_start"), widths);
    end = triangle_attention_of(pairs.child("tri_att_end"), widths);
  }
  pair_transition = transition_of(pairs.child("pair_transition"), c);
}

namespace {

Masks masks_in(const Masks& masks, at::ScalarType type) {
  return {cast(masks.msa, type), cast(masks.pair, type)};
}

/// One pass through a block. Each block of rows is computed alone; between two operations tensors have all
/// rows of this rank.
class BlockPass {
 public:
  BlockPass(const std::vector<Block>& blocks, const BlockInputs& inputs)
      : blocks_(blocks),
        in_(inputs),
        masks_(masks_in(inputs.masks, blocks[0].outgoing.norm_in.type)),
        axis_(inputs.places.axis),
        residues_(own_blocks(axis_, inputs.places.residues)) {}

  layers::Flow run(layers::Flow flow) const {
    Typed<Rows> z(flow.back());
    if (!in_.widths.has_msa) return {update_pairs(std::move(z)).value()};
    const Places& places = in_.places;
    const Typed<Columns> m = update_msa(Typed<Rows>(flow[0]), z);
    z = z + outer_product(m);
    const Typed<Rows> by_sequence = reshard_to<1>(m, axis_, places.residues, places.sequences);
    return {by_sequence.value(), update_pairs(std::move(z)).value()};
  }

 private:
  /// operation(part, rows, i) of each block i of rows, with its parameters.
  template <class Part, class Operation>
  Typed<Rows> by_block(Part Block::*part, const Typed<Rows>& x, const RowBlocks& blocks,
                       const Operation& operation) const {
    std::vector<at::Tensor> rows = split(x, blocks);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = operation(blocks_[i].*part, Typed<Rows>(rows[i]), i);
    }
    return join<1>(std::move(rows), blocks);
  }

  /// The rows of a mask that block i reads.
  static at::Tensor rows_of(const at::Tensor& mask, const RowBlocks& blocks, size_t i) {
    return own_rows(mask, blocks.ranges[i]);
  }

  /// m by residue, after algorithms 7 to 9.
  Typed<Columns> update_msa(Typed<Rows> m, const Typed<Rows>& z) const {
    const Places& places = in_.places;
    const RowBlocks sequences = own_blocks(axis_, places.sequences);
    const Typed<Rows> projected =
        by_block(&Block::row, z, residues_, [](const RowAttention& row, const auto& x, size_t) {
          return row.bias(row.norm_z(x.value()));
        });
    const std::vector<Typed<Full>> biases = gather_for_blocks(projected, axis_, places.residues);
    m = add_dropped(
        m,
        by_block(
            &Block::row, m, sequences,
            [&](const RowAttention& row, const auto& x, size_t i) {
              const Typed<Rows> normed(row.norm_m(x.value()));
              return row.attention(normed, biases[i], rows_of(masks_.msa, sequences, i)).value();
            }),
        kRow, kMsaShare * in_.dropout.probability, in_.dropout);
    return transposed(
        update_columns(transposed(reshard_to<2>(m, axis_, places.sequences, places.residues))));
  }

  /// Algorithms 8 and 9 of residues.
  Typed<Rows> update_columns(const Typed<Rows>& residues) const {
    const at::Tensor msa = masks_.msa.transpose(1, 2);
    const Typed<Rows> attended =
        residues + by_block(&Block::column, residues, residues_,
                            [&](const ColumnAttention& column, const auto& x, size_t i) {
                              const Typed<Rows> normed(column.norm(x.value()));
                              return column.attention(normed, rows_of(msa, residues_, i)).value();
                            });
    return attended + by_block(&Block::msa_transition, attended, residues_,
                               [&](const Transition& transition, const auto& x, size_t i) {
                                 return transition(x.value(), rows_of(msa, residues_, i));
                               });
  }

  Typed<Rows> outer_product(const Typed<Columns>& m) const {
    std::vector<at::Tensor> rows = split(m, residues_), left = rows, right = rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      const OuterProductMean& outer = blocks_[i].outer;
      const layout::Range range = residues_.ranges[i];
      const at::Tensor x = outer.norm(rows[i]);
      const at::Tensor there = masks_.msa.narrow(2, range.begin, range.size()).unsqueeze(-1);
      right[i] = outer.b(x) * there;
      left[i] = outer.a(x) * there;
    }
    const auto all = gather_for_blocks(join<2>(right, residues_), axis_, in_.places.residues);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = blocks_[i].outer(left[i], all[i], in_.masks.msa, residues_.ranges[i]);
    }
    return join<1>(std::move(rows), residues_);
  }

  Typed<Rows> multiply(TriangleMultiplication Block::*part, const Typed<Rows>& z) const {
    std::vector<at::Tensor> x = split(z, residues_), a = x, b = x;
    for (size_t i = 0; i < x.size(); ++i) {
      const TriangleMultiplication& one = blocks_[i].*part;
      x[i] = one.norm_in(x[i]);
      const at::Tensor there = rows_of(masks_.pair, residues_, i).unsqueeze(-1);
      const auto edges = [&](const Linear& project, const Linear& gated) {
        return there * at::sigmoid(gated(x[i])) * project(x[i]);
      };
      b[i] = edges(one.b, one.b_gate);
      a[i] = edges(one.a, one.a_gate);
    }
    const Edges edges = (blocks_[0].*part).is_outgoing ? Edges::kOutgoing : Edges::kIncoming;
    const Typed<Rows> product =
        triangle_product(join<1>(a, residues_), join<1>(b, residues_), edges, in_.places);
    return by_block(part, product, residues_,
                    [&](const TriangleMultiplication& one, const auto& p, size_t i) {
                      return at::sigmoid(one.gate(x[i])) * one.out(one.norm_out(p.value()));
                    });
  }

  Typed<Rows> attend(TriangleAttention Block::*part, const Typed<Rows>& z,
                     const at::Tensor& pairs) const {
    std::vector<at::Tensor> x = split(z, residues_), projected = x;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (blocks_[i].*part).norm(x[i]);
      projected[i] = (blocks_[i].*part).bias(x[i]);
    }
    const auto biases =
        gather_for_blocks(join<1>(projected, residues_), axis_, in_.places.residues);
    for (size_t i = 0; i < x.size(); ++i) {
      const at::Tensor mask = rows_of(pairs, residues_, i);
      x[i] = (blocks_[i].*part).attention(Typed<Rows>(x[i]), biases[i], mask).value();
    }
    return join<1>(std::move(x), residues_);
  }

  Typed<Rows> update_pairs(Typed<Rows> z) const {
    const at::Tensor& pairs = masks_.pair;
    const Extents& residues = in_.places.residues;
    const auto add = [&](const Typed<Rows>& x, const Typed<Rows>& update, Place place) {
      return add_dropped(x, update, place, in_.dropout.probability, in_.dropout);
    };
    z = add(z, multiply(&Block::outgoing, z), kOutgoing);
    z = add(z, multiply(&Block::incoming, z), kIncoming);
    if (in_.widths.has_attention) {
      z = add(z, attend(&Block::start, z, pairs), kStart);
      Typed<Rows> turned = transposed(reshard_to<2>(z, axis_, residues, residues));
      turned = add(turned, attend(&Block::end, turned, pairs.transpose(1, 2)), kEnd);
      z = reshard_to<1>(transposed(turned), axis_, residues, residues);
    }
    return z + by_block(&Block::pair_transition, z, residues_,
                        [&](const Transition& transition, const auto& x, size_t i) {
                          return transition(x.value(), rows_of(pairs, residues_, i));
                        });
  }

  const std::vector<Block>& blocks_;
  const BlockInputs& in_;
  const Masks masks_;  ///< That multiply what is computed.
  const Axis& axis_;
  RowBlocks residues_;
};

}  // namespace

layers::Flow run_block(const std::vector<Block>& blocks, layers::Flow flow,
                       const BlockInputs& inputs) {
  return BlockPass(blocks, inputs).run(std::move(flow));
}

}  // namespace hanji::models::evoformer
