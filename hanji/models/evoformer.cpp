#include "hanji/models/evoformer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/models/internal/evoformer_block.h"

namespace hanji::models {
namespace {

using parallel::axial::join;
using parallel::axial::own_blocks;
using parallel::axial::own_rows;
using parallel::axial::Places;
using parallel::axial::places_on;
using parallel::axial::reshard_to;
using parallel::axial::RowBlocks;
using parallel::axial::Rows;
using parallel::axial::split;
using parallel::axial::transposed;
using parallel::axial::Typed;

constexpr int64_t kMaxOffset = 32;  ///< Of residues along the chain; those further away are alike.

struct Embedding {
  evoformer::Linear offset, left, right, target, sequence;  // of sequences
  evoformer::Linear pair;                                   // of pairs alone
};

Embedding embedding_of(const evoformer::Builder& builder, const EvoformerOptions& o) {
  constexpr int64_t kStates = EvoformerImpl::kResidueStates;
  Embedding e;
  if (!o.has_msa) {
    e.pair = builder.linear("linear_pair", o.width, EvoformerImpl::kPairStates);
    return e;
  }
  e.left = builder.linear("linear_tf_z_i", o.width, kStates);
  e.right = builder.linear("linear_tf_z_j", o.width, kStates);
  e.target = builder.linear("linear_tf_m", 2 * o.width, kStates);
  e.sequence = builder.linear("linear_msa_m", 2 * o.width, kStates);
  e.offset = builder.linear("linear_relpos", o.width, 2 * kMaxOffset + 1);
  return e;
}

evoformer::Linear head_of(const evoformer::Builder& builder, const EvoformerOptions& o) {
  return builder.linear("linear", o.classes, o.width, evoformer::Initial::kZero);
}

/// Rows of zeros where a state is negative.
at::Tensor one_hot(const at::Tensor& states, int64_t count, at::ScalarType dtype) {
  return states.unsqueeze(-1).eq(at::arange(count, states.options())).to(dtype);
}

at::Tensor offsets(int64_t length, const at::TensorOptions& options) {
  const at::Tensor place = at::arange(length, options.dtype(at::kLong));
  return (place.unsqueeze(1) - place.unsqueeze(0)).clamp(-kMaxOffset, kMaxOffset) + kMaxOffset;
}

evoformer::Masks masks_of(const at::Tensor& inputs, bool has_msa, at::ScalarType dtype) {
  const at::Tensor there = inputs.ge(0).to(dtype);
  if (!has_msa) return {{}, there};
  const at::Tensor residues = there.select(1, 0);
  return {there, residues.unsqueeze(2) * residues.unsqueeze(1)};
}

void check_evoformer(const EvoformerOptions& o) {
  const bool positive = o.blocks > 0 && o.width > 0 && o.heads > 0;
  const bool fits = positive && o.width % o.heads == 0 && o.classes > 1;
  if (fits && o.dropout >= 0 && o.dropout < 1) return;
  throw Error(base::invalid_argument(
      fmt::format("evoformer: {} blocks, width {}, heads {}, {} classes, dropout {}: sizes are at "
                  "least 1, classes at least 2, width is a multiple of heads, and dropout lies in "
                  "[0, 1)",
                  o.blocks, o.width, o.heads, o.classes, o.dropout)));
}

at::ScalarType parameter_type(base::Precision dtype) {
  return dtype == base::Precision::kFloat64 ? at::kDouble : at::kFloat;
}

at::ScalarType compute_type(base::Precision dtype) {
  return dtype == base::Precision::kBFloat16 ? at::kBFloat16 : parameter_type(dtype);
}

/// The share of true contacts among as many pairs as there are contacts, the likeliest ones.
double precision_of(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor upper = at::ones_like(targets).triu(1).logical_and(targets.ge(0));
  const at::Tensor truth = targets.masked_select(upper);
  const int64_t contacts = truth.sum().item<int64_t>();
  if (contacts == 0) return 1;
  const at::Tensor score = (logits.select(-1, 1) - logits.select(-1, 0)).masked_select(upper);
  const at::Tensor found = truth.index_select(0, std::get<1>(score.topk(contacts)));
  return static_cast<double>(found.sum().item<int64_t>()) / static_cast<double>(contacts);
}

}  // namespace

struct EvoformerImpl::Parts {
  std::vector<std::shared_ptr<Module>> layers;  ///< Whose parameters each layer reads.
  Embedding embedding;
  evoformer::Widths widths;
  std::vector<evoformer::Block> blocks;
  evoformer::Linear head;
};

EvoformerImpl::EvoformerImpl(const EvoformerOptions& options)
    : Model("Evoformer"), options_(options), parts_(std::make_unique<Parts>()) {
  check_evoformer(options);
  const evoformer::Builder root(
      *this, options.seed, at::TensorOptions(parameter_type(options.dtype)).device(options.device),
      compute_type(options.dtype));
  const auto layer = [&](const evoformer::Builder& builder) {
    parts_->layers.push_back(builder.module());
  };
  const evoformer::Builder embedder = root.child("input_embedder");
  parts_->embedding = embedding_of(embedder, options);
  layer(embedder);
  const evoformer::Builder list = root.child("evoformer").child("blocks");
  parts_->widths = {.pair = options.width,
                    .heads = options.heads,
                    .has_msa = options.has_msa,
                    .has_attention = options.has_attention,
                    .chunk_bytes = options.chunk_bytes};
  for (int64_t i = 0; i < options.blocks; ++i) {
    const evoformer::Builder block = list.child(std::to_string(i));
    parts_->blocks.emplace_back(block, parts_->widths);
    layer(block);
  }
  const evoformer::Builder head = root.child("aux_heads").child("distogram");
  parts_->head = head_of(head, options);
  layer(head);
}

EvoformerImpl::~EvoformerImpl() = default;

Places EvoformerImpl::places_of(const layers::Batch& batch) const {
  const int64_t rows = batch.inputs.size(1), residues = batch.inputs.size(2);
  const int64_t ranks = options_.axis.degree();
  if (residues < ranks || rows < ranks) {
    throw Error(base::invalid_argument(
        fmt::format("evoformer: {} {} of {} residues on an axis of {} ranks; each rank has "
                    "at least one of both",
                    rows, options_.has_msa ? "sequences" : "rows", residues, ranks)));
  }
  return places_on(options_.axis, residues, options_.has_msa ? rows : 0, options_.triangle);
}

/// Layer `index`, once for each block of rows: `whole`, or what `make` makes of copies of its parameters.
template <class Part, class Make>
std::vector<Part> EvoformerImpl::of_blocks(int64_t index, const Part& whole,
                                           const Make& make) const {
  if (options_.axis.num_blocks() == 1) return {whole};
  std::vector<Part> parts;
  for (auto& one : parallel::axial::parameters_of_blocks(layer_parameters(index), options_.axis)) {
    parts.push_back(make(evoformer::Builder(std::move(one), compute_type(options_.dtype))));
  }
  return parts;
}

layers::Flow EvoformerImpl::layer(int64_t index, layers::Flow flow, const layers::Batch& batch) {
  const Places places = places_of(batch);
  if (index == 0) return embed(batch, places);
  if (index == num_layers() - 1) return {classify(Typed<Rows>(flow.back()), places).value()};
  const auto masks = masks_of(batch.inputs, options_.has_msa, flow.back().scalar_type());
  const evoformer::Dropout dropout{
      is_training() ? options_.dropout : 0,
      {batch.counters.seed, batch.counters.step, batch.positions.begin, index - 1}};
  const auto make = [&](const evoformer::Builder& builder) {
    return evoformer::Block(builder, parts_->widths);
  };
  const auto blocks = of_blocks(index, parts_->blocks[static_cast<size_t>(index - 1)], make);
  return evoformer::run_block(blocks, std::move(flow), {parts_->widths, masks, dropout, places});
}

Typed<Rows> EvoformerImpl::classify(const Typed<Rows>& z, const Places& places) const {
  const auto make = [&](const evoformer::Builder& builder) { return head_of(builder, options_); };
  const auto heads = of_blocks(num_layers() - 1, parts_->head, make);
  const RowBlocks residues = own_blocks(places.axis, places.residues);
  std::vector<at::Tensor> rows = split(z, residues);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = heads[i](rows[i]);
  const Typed<Rows> logits = join<1>(std::move(rows), residues);
  return logits + transposed(reshard_to<2>(logits, places.axis, places.residues, places.residues));
}

layers::Flow EvoformerImpl::embed(const layers::Batch& batch, const Places& places) const {
  const auto make = [&](const evoformer::Builder& builder) {
    return embedding_of(builder, options_);
  };
  const auto parts = of_blocks(0, parts_->embedding, make);
  const auto dtype = parts_->head.weight.scalar_type();
  const RowBlocks residues = own_blocks(places.axis, places.residues);
  std::vector<at::Tensor> m, z;
  if (!options_.has_msa) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor states = own_rows(batch.inputs, residues.ranges[i]);
      z.push_back(parts[i].pair(one_hot(states, kPairStates, dtype)));
    }
    return {join<1>(std::move(z), residues).value()};
  }
  const RowBlocks sequences = own_blocks(places.axis, places.sequences);
  const at::Tensor target = one_hot(batch.inputs.select(1, 0), kResidueStates, dtype);
  const at::Tensor along = offsets(batch.inputs.size(2), batch.inputs.options());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Embedding& e = parts[i];
    const at::Tensor states = own_rows(batch.inputs, sequences.ranges[i]);
    m.push_back(e.sequence(one_hot(states, kResidueStates, dtype)) + e.target(target).unsqueeze(1));
    const layout::Range own = residues.ranges[i];
    const at::Tensor offset =
        one_hot(along.narrow(0, own.begin, own.size()), 2 * kMaxOffset + 1, dtype);
    z.push_back(e.left(own_rows(target, own)).unsqueeze(2) + e.right(target).unsqueeze(1) +
                e.offset(offset));
  }
  return {join<1>(std::move(m), sequences).value(), join<1>(std::move(z), residues).value()};
}

std::vector<at::Tensor> EvoformerImpl::layer_parameters(int64_t index) const {
  return parts_->layers[static_cast<size_t>(index)]->parameters();
}

layers::LossSum EvoformerImpl::loss(layers::Flow flow, const layers::Batch& batch) {
  const parallel::tensor::Axis& axis = options_.axis;
  const Places places = places_of(batch);
  const RowBlocks blocks = own_blocks(axis, places.residues);
  const std::vector<at::Tensor> logits = split(Typed<Rows>(flow.at(0)), blocks);
  std::vector<at::Tensor> terms;
  for (size_t i = 0; i < logits.size(); ++i) {
    const at::Tensor targets = own_rows(batch.targets, blocks.ranges[i]).clamp_min(-1).flatten();
    terms.push_back(
        at::cross_entropy_loss(logits[i].flatten(0, 2), targets, {}, at::Reduction::Sum, -1));
  }
  const bool is_term = axis.degree() > 1 && axis.num_blocks() == 1;
  const int64_t count = is_term && !batch.targets.is_meta()
                            ? own_rows(batch.targets, blocks.ranges[0]).ge(0).sum().item<int64_t>()
                            : batch.num_valid;
  return {parallel::axial::sum_of_blocks(terms, axis), count};
}

double EvoformerImpl::metric_sum(const layers::Flow& flow, const layers::Batch& batch) const {
  at::Tensor logits = flow.at(0).detach();
  if (options_.axis.degree() > 1) {
    logits = options_.axis.gather(logits, 1, places_of(batch).residues);
    // Ranks' metrics are added up, as their losses, where those are terms.
    if (options_.axis.num_blocks() == 1 && options_.axis.rank() != 0) return 0;
  }
  if (options_.classes != 2) {
    return static_cast<double>(logits.argmax(-1).eq(batch.targets).sum().item<int64_t>());
  }
  double sum = 0;
  for (int64_t i = 0; i < logits.size(0); ++i) {
    const auto valid = static_cast<double>(batch.targets[i].ge(0).sum().item<int64_t>());
    sum += valid * precision_of(logits[i], batch.targets[i]);
  }
  return sum;
}

std::shared_ptr<layers::Model> make_evoformer(const EvoformerOptions& options) {
  return std::make_shared<EvoformerImpl>(options);
}

}  // namespace hanji::models
