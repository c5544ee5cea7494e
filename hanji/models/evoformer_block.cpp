#include "hanji/models/internal/evoformer_block.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "hanji/models/internal/initial.h"
#include "hanji/parallel/axial/layouts.h"
#include "hanji/parallel/checkpointed.h"

namespace hanji::models::evoformer {
namespace {

using parallel::axial::Edges;
using parallel::axial::gather;
using parallel::axial::own_rows;
using parallel::axial::reshard_to;
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

struct Budget {
  int64_t bytes = 0;      ///< 0: any.
  int64_t row_bytes = 1;  ///< Of what one row holds beside inputs and output.
};

template <class Function, size_t... I>
at::Tensor call_chunked(const Function& function, const std::array<at::Tensor, sizeof...(I)>& rows,
                        int64_t most, const at::Tensor& shared,
                        std::index_sequence<I...> /*places*/) {
  const std::array<std::vector<at::Tensor>, sizeof...(I)> chunks = {rows[I].split(most, 1)...};
  std::vector<at::Tensor> results;
  for (size_t chunk = 0; chunk < chunks[0].size(); ++chunk) {
    results.push_back(parallel::checkpointed(function, chunks[I][chunk]..., shared));
  }
  return at::cat(results, 1);
}

/// function(rows..., shared), of which each row along dimension 1 depends on the same row of `rows` alone:
/// in one call, or where the budget does not suffice in several that keep only their inputs.
template <size_t kNumRows, class Function>
at::Tensor by_chunks(const Function& function, Budget budget,
                     const std::array<at::Tensor, kNumRows>& rows, const at::Tensor& shared) {
  const auto places = std::make_index_sequence<kNumRows>();
  const int64_t all = rows[0].size(1);
  const int64_t most = std::max<int64_t>(1, budget.bytes / std::max<int64_t>(1, budget.row_bytes));
  if (budget.bytes > 0 && most < all) return call_chunked(function, rows, most, shared, places);
  return [&]<size_t... I>(std::index_sequence<I...> /*places*/) {
    return function(rows[I]..., shared);
  }
  (places);
}

/// Added to what it was computed from, with one mask for all rows, so that ranks need no part of it.
Typed<Rows> add_dropped(const Typed<Rows>& x, const Typed<Rows>& update, Place place,
                        double probability, const Dropout& dropout) {
  if (probability == 0) return x + update;
  const at::Tensor& y = update.value();
  compute::DropoutKey key = dropout.key;
  key.layer = key.layer * kNumPlaces + place;
  const at::Tensor mask =
      compute::dropout_mask({y.size(0), 1, y.size(2), y.size(3)}, probability, key, y.options());
  return Typed<Rows>(x.value() + y * mask);
}

/// An operation that treats every row, or every element of one, alone.
template <class Placement, class Operation, class... More>
Typed<Placement> apply(const Operation& operation, const Typed<Placement>& x, const More&... more) {
  return Typed<Placement>(operation(x.value(), more...));
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kEpsilon);
}

Builder Builder::child(const std::string& name) const {
  Builder below = *this;
  below.module_ = module_->register_module(name, std::make_shared<torch::nn::Module>());
  below.path_ = path_ + name + ".";
  return below;
}

Linear Builder::linear(const std::string& name, int64_t outputs, int64_t inputs, Initial initial,
                       bool has_bias) const {
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
  const Builder own = child(name);
  return {own.module_->register_parameter("weight", at::ones({width}, options_)),
          own.module_->register_parameter("bias", at::zeros({width}, options_))};
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
      by_chunks<4>(attended, {chunk_bytes, row_bytes}, {queries, keys, all, hidden}, bias);
  const at::Tensor joined = values.transpose(2, 3).reshape({batch, rows, length, inner});
  return out(at::sigmoid(gate(x)) * joined);
}

at::Tensor Transition::operator()(const at::Tensor& x, const at::Tensor& mask) const {
  return down(at::relu(up(norm(x)))) * mask.unsqueeze(-1);
}

Typed<Rows> OuterProductMean::operator()(const Typed<Columns>& m, const at::Tensor& mask,
                                         const Places& places) const {
  const layout::Range own = places.own_residues();
  const at::Tensor own_mask = mask.narrow(2, own.begin, own.size());
  const at::Tensor x = norm(m.value()), there = own_mask.unsqueeze(-1);
  const Typed<Columns> mine(b(x) * there);
  const at::Tensor right = gather(mine, places.axis, places.residues).value().flatten(2);
  const at::Tensor left = (a(x) * there).permute({0, 2, 3, 1});
  const int64_t batch = x.size(0), width = a.weight.size(0), length = mask.size(2);
  const auto products = [this, batch, width, length](const at::Tensor& rows,
                                                     const at::Tensor& columns) {
    return out(at::matmul(rows.flatten(1, 2), columns)
                   .view({batch, rows.size(1), width, length, width})
                   .permute({0, 1, 3, 2, 4})
                   .reshape({batch, rows.size(1), length, width * width}));
  };
  const int64_t row_bytes = 2 * batch * length * width * width * x.element_size();
  const at::Tensor product = by_chunks<1>(products, {chunk_bytes, row_bytes}, {left}, right);
  const at::Tensor sequences = at::matmul(own_mask.transpose(1, 2), mask) + kNormEpsilon;
  return Typed<Rows>(product / sequences.unsqueeze(-1));
}

Typed<Rows> TriangleMultiplication::operator()(const Typed<Rows>& z, const at::Tensor& mask,
                                               const Places& places) const {
  const at::Tensor x = norm_in(z.value()), there = mask.unsqueeze(-1);
  const auto edges = [&](const Linear& project, const Linear& gated) {
    return Typed<Rows>(there * at::sigmoid(gated(x)) * project(x));
  };
  const Typed<Rows> product =
      triangle_product(edges(a, a_gate), edges(b, b_gate),
                       is_outgoing ? Edges::kOutgoing : Edges::kIncoming, places);
  return Typed<Rows>(at::sigmoid(gate(x)) * out(norm_out(product.value())));
}

Typed<Rows> TriangleAttention::operator()(const Typed<Rows>& z, const at::Tensor& mask,
                                          const Places& places) const {
  const Typed<Rows> x = apply(norm, z);
  return attention(x, gather(apply(bias, x), places.axis, places.residues), mask);
}

Block::Block(const Builder& builder, const Widths& widths) : widths_(widths) {
  const int64_t c = widths.pair, m = widths.msa();
  if (widths.has_msa) {
    const Builder row = builder.child("msa_att_row");
    row_ = {row.norm("layer_norm_m", m), row.norm("layer_norm_z", c),
            row.linear("linear_z", 2 * widths.heads, c, Initial::kNormal, false),
            attention_of(row.child("mha"), widths, 2)};
    const Builder column = builder.child("msa_att_col").child("_msa_att");
    column_ = {column.norm("layer_norm_m", m), attention_of(column.child("mha"), widths, 2)};
    msa_transition_ = transition_of(builder.child("msa_transition"), m);
    const Builder outer = builder.child("outer_product_mean");
    outer_ = {widths.chunk_bytes, outer.norm("layer_norm", m),
              outer.linear("linear_1", widths.head(), m),
              outer.linear("linear_2", widths.head(), m),
              outer.linear("linear_out", c, widths.head() * widths.head(), Initial::kZero)};
  }
  const Builder pairs = builder.child("pair_stack");
  outgoing_ = multiplication_of(pairs.child("tri_mul_out"), c, true);
  incoming_ = multiplication_of(pairs.child("tri_mul_in"), c, false);
  if (widths.has_attention) {
    start_ = triangle_attention_of(pairs.child("tri_att_start"), widths);
    end_ = triangle_attention_of(pairs.child("tri_att_end"), widths);
  }
  pair_transition_ = transition_of(pairs.child("pair_transition"), c);
}

layers::Flow Block::operator()(layers::Flow flow, const Masks& masks, const Dropout& dropout,
                               const Places& places) const {
  Typed<Rows> z(flow.back());
  if (!widths_.has_msa) return {update_pairs(std::move(z), masks.pair, dropout, places).value()};
  const Typed<Columns> m = update_msa(Typed<Rows>(flow[0]), z, masks, dropout, places);
  z = z + outer_(m, masks.msa, places);
  const Typed<Rows> by_sequence = reshard_to<1>(m, places.axis, places.residues, places.sequences);
  return {by_sequence.value(), update_pairs(std::move(z), masks.pair, dropout, places).value()};
}

Typed<Columns> Block::update_msa(Typed<Rows> m, const Typed<Rows>& z, const Masks& masks,
                                 const Dropout& dropout, const Places& places) const {
  const Typed<Full> bias =
      gather(apply(row_.bias, apply(row_.norm_z, z)), places.axis, places.residues);
  const at::Tensor row_mask = own_rows(masks.msa, places.own_sequences());
  m = add_dropped(m, row_.attention(apply(row_.norm_m, m), bias, row_mask), kRow,
                  kMsaShare * dropout.probability, dropout);
  const Typed<Rows> residues =
      transposed(reshard_to<2>(m, places.axis, places.sequences, places.residues));
  const at::Tensor mask = own_rows(masks.msa.transpose(1, 2), places.own_residues());
  const Typed<Rows> attended = residues + column_.attention(apply(column_.norm, residues), mask);
  return transposed(attended + apply(msa_transition_, attended, mask));
}

Typed<Rows> Block::update_pairs(Typed<Rows> z, const at::Tensor& pairs, const Dropout& dropout,
                                const Places& places) const {
  const layout::Range own = places.own_residues();
  const at::Tensor mask = own_rows(pairs, own);
  const double probability = dropout.probability;
  z = add_dropped(z, outgoing_(z, mask, places), kOutgoing, probability, dropout);
  z = add_dropped(z, incoming_(z, mask, places), kIncoming, probability, dropout);
  if (widths_.has_attention) {
    z = add_dropped(z, start_(z, mask, places), kStart, probability, dropout);
    Typed<Rows> turned =
        transposed(reshard_to<2>(z, places.axis, places.residues, places.residues));
    turned = add_dropped(turned, end_(turned, own_rows(pairs.transpose(1, 2), own), places), kEnd,
                         probability, dropout);
    z = reshard_to<1>(transposed(turned), places.axis, places.residues, places.residues);
  }
  return z + apply(pair_transition_, z, mask);
}

}  // namespace hanji::models::evoformer
