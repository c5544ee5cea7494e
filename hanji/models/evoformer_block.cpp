#include "hanji/models/internal/evoformer_block.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "hanji/models/internal/initial.h"

namespace hanji::models::evoformer {
namespace {

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

GatedAttention attention_of(const Builder& builder, int64_t width, int64_t heads, int64_t head) {
  const int64_t inner = heads * head;
  return {heads,
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
          attention_of(builder.child("mha"), widths.pair, widths.heads, widths.head())};
}

/// Per head, [B, rows, columns, H] -> [B, H, rows, columns].
at::Tensor heads_first(const at::Tensor& bias) { return bias.permute({0, 3, 1, 2}); }

/// One mask for all rows.
at::Tensor drop_rows(const at::Tensor& x, Place place, double probability, const Dropout& dropout) {
  if (probability == 0) return x;
  compute::DropoutKey key = dropout.key;
  key.layer = key.layer * kNumPlaces + place;
  const at::Tensor mask =
      compute::dropout_mask({x.size(0), 1, x.size(2), x.size(3)}, probability, key, x.options());
  return x * mask;
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

at::Tensor GatedAttention::operator()(const at::Tensor& x, const at::Tensor& bias,
                                      const at::Tensor& mask) const {
  const int64_t batch = x.size(0), rows = x.size(1), length = x.size(2);
  const int64_t inner = query.weight.size(0);
  const auto split = [&](const at::Tensor& y) {
    return y.view({batch, rows, length, heads, inner / heads}).transpose(2, 3);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(inner / heads));
  at::Tensor logits = at::matmul(split(query(x) * scale), split(key(x)).transpose(-1, -2));
  logits.add_(((mask - 1) * kMasked).view({batch, rows, 1, 1, length}));
  if (bias.defined()) logits.add_(bias.unsqueeze(1));
  const at::Tensor values = at::matmul(at::softmax(logits, -1), split(value(x)));
  const at::Tensor joined = values.transpose(2, 3).reshape({batch, rows, length, inner});
  return out(at::sigmoid(gate(x)) * joined);
}

at::Tensor Transition::operator()(const at::Tensor& x, const at::Tensor& mask) const {
  return down(at::relu(up(norm(x)))) * mask.unsqueeze(-1);
}

at::Tensor OuterProductMean::operator()(const at::Tensor& m, const at::Tensor& mask) const {
  const int64_t batch = m.size(0), length = m.size(2), width = a.weight.size(0);
  const at::Tensor x = norm(m), there = mask.unsqueeze(-1);
  const at::Tensor left = (a(x) * there).flatten(2), right = (b(x) * there).flatten(2);
  const at::Tensor product = at::matmul(left.transpose(1, 2), right)
                                 .view({batch, length, width, length, width})
                                 .permute({0, 1, 3, 2, 4})
                                 .reshape({batch, length, length, width * width});
  const at::Tensor sequences = at::matmul(mask.transpose(1, 2), mask) + kNormEpsilon;
  return out(product) / sequences.unsqueeze(-1);
}

at::Tensor TriangleMultiplication::operator()(const at::Tensor& z, const at::Tensor& mask) const {
  const at::Tensor x = norm_in(z), there = mask.unsqueeze(-1);
  const auto edges = [&](const Linear& project, const Linear& gated) {
    return heads_first(there * at::sigmoid(gated(x)) * project(x));
  };
  const at::Tensor left = edges(a, a_gate), right = edges(b, b_gate);
  const at::Tensor product = is_outgoing ? at::matmul(left, right.transpose(-1, -2))
                                         : at::matmul(left.transpose(-1, -2), right);
  return at::sigmoid(gate(x)) * out(norm_out(product.permute({0, 2, 3, 1})));
}

at::Tensor TriangleAttention::operator()(const at::Tensor& z, const at::Tensor& mask) const {
  const at::Tensor x = norm(z);
  return attention(x, heads_first(bias(x)), mask);
}

Block::Block(const Builder& builder, const Widths& widths) : widths_(widths) {
  const int64_t c = widths.pair, m = widths.msa();
  if (widths.has_msa) {
    const Builder row = builder.child("msa_att_row");
    row_ = {row.norm("layer_norm_m", m), row.norm("layer_norm_z", c),
            row.linear("linear_z", 2 * widths.heads, c, Initial::kNormal, false),
            attention_of(row.child("mha"), m, 2 * widths.heads, widths.head())};
    const Builder column = builder.child("msa_att_col").child("_msa_att");
    column_ = {column.norm("layer_norm_m", m),
               attention_of(column.child("mha"), m, 2 * widths.heads, widths.head())};
    msa_transition_ = transition_of(builder.child("msa_transition"), m);
    const Builder outer = builder.child("outer_product_mean");
    outer_ = {outer.norm("layer_norm", m), outer.linear("linear_1", widths.head(), m),
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

layers::Flow Block::operator()(layers::Flow flow, const Masks& masks,
                               const Dropout& dropout) const {
  at::Tensor z = flow.back();
  if (!widths_.has_msa) return {update_pairs(std::move(z), masks.pair, dropout)};
  const at::Tensor m = update_msa(flow[0], z, masks, dropout);
  z = z + outer_(m, masks.msa);
  return {m, update_pairs(std::move(z), masks.pair, dropout)};
}

at::Tensor Block::update_msa(at::Tensor m, const at::Tensor& z, const Masks& masks,
                             const Dropout& dropout) const {
  const at::Tensor bias = heads_first(row_.bias(row_.norm_z(z)));
  m = m + drop_rows(row_.attention(row_.norm_m(m), bias, masks.msa), kRow,
                    kMsaShare * dropout.probability, dropout);
  const at::Tensor columns = column_.norm(m).transpose(1, 2);
  m = m + column_.attention(columns, {}, masks.msa.transpose(1, 2)).transpose(1, 2);
  return m + msa_transition_(m, masks.msa);
}

at::Tensor Block::update_pairs(at::Tensor z, const at::Tensor& mask, const Dropout& dropout) const {
  const double probability = dropout.probability;
  z = z + drop_rows(outgoing_(z, mask), kOutgoing, probability, dropout);
  z = z + drop_rows(incoming_(z, mask), kIncoming, probability, dropout);
  if (widths_.has_attention) {
    z = z + drop_rows(start_(z, mask), kStart, probability, dropout);
    const at::Tensor transposed = end_(z.transpose(1, 2), mask.transpose(1, 2));
    z = z + drop_rows(transposed, kEnd, probability, dropout).transpose(1, 2);
  }
  return z + pair_transition_(z, mask);
}

}  // namespace hanji::models::evoformer
