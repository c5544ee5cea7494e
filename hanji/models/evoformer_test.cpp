// The block against section 3 of the supplement in plain libtorch, written without the model's parts.
#include "hanji/models/evoformer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "hanji/base/status.h"
#include "hanji/compute/dropout.h"
#include "hanji/parallel/recompute.h"

namespace hanji::models {
namespace {

using Parameters = std::map<std::string, at::Tensor>;

/// Algorithms 6 to 15 of one sample, by the names of OpenFold: sums over indices as they are printed.
class PlainEvoformer {
 public:
  PlainEvoformer(const Parameters& parameters, int64_t heads, int64_t step, double dropout)
      : parameters_(parameters), heads_(heads), step_(step), dropout_(dropout) {}

  struct State {
    at::Tensor m, z;        ///< [S, N, c_m], [N, N, c_z]
    at::Tensor msa, pairs;  ///< Masks.
  };

  void block(State& s, int64_t index) const {
    const std::string at = fmt::format("evoformer.blocks.{}.", index);
    const std::string pair = at + "pair_stack.";
    if (s.m.defined()) update_msa(s, at, index);
    s.z = s.z + drop(multiply(s, pair + "tri_mul_out.", true), 0.25, index, 1);
    s.z = s.z + drop(multiply(s, pair + "tri_mul_in.", false), 0.25, index, 2);
    if (parameters_.contains(pair + "tri_att_start.linear.weight")) {
      s.z = s.z + drop(triangle(s.z, s.pairs, pair + "tri_att_start."), 0.25, index, 3);
      const at::Tensor turned = s.z.transpose(0, 1);
      s.z = (turned + drop(triangle(turned, s.pairs.t(), pair + "tri_att_end."), 0.25, index, 4))
                .transpose(0, 1);
    }
    s.z = s.z + transition(s.z, s.pairs, pair + "pair_transition.");
  }

 private:
  const at::Tensor& get(const std::string& name) const { return parameters_.at(name); }

  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    at::Tensor y = at::einsum("...k,nk->...n", {x, get(name + ".weight")});
    const auto bias = parameters_.find(name + ".bias");
    return bias == parameters_.end() ? y : y + bias->second;
  }

  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    const at::Tensor variance = centred.pow(2).mean(-1, true);
    return centred / (variance + 1e-5).sqrt() * get(name + ".weight") + get(name + ".bias");
  }

  /// One row dropout, shared by the first dimension; probability p of 0.25 is the model's.
  at::Tensor drop(const at::Tensor& x, double p, int64_t index, int64_t place) const {
    if (dropout_ == 0) return x;
    return x * compute::dropout_mask({1, 1, x.size(1), x.size(2)}, p / 0.25 * dropout_,
                                     {7, step_, 5, index * 5 + place}, x.options())[0];
  }

  /// x [A, Q, C], bias [H, Q, Q], mask [A, Q].
  at::Tensor attend(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& mask,
                    int64_t heads, const std::string& name) const {
    const auto split = [&](const char* which) {
      return linear(x, name + which).unflatten(-1, {heads, -1});
    };
    const at::Tensor q = split("linear_q"), k = split("linear_k"), v = split("linear_v");
    at::Tensor logits = at::einsum("aqhc,akhc->ahqk", {q, k}) / std::sqrt(q.size(-1));
    logits = logits + 1e9 * (mask - 1).unsqueeze(1).unsqueeze(1);
    if (bias.defined()) logits = logits + bias.unsqueeze(0);
    const at::Tensor shifted = (logits - logits.amax(-1, true).detach()).exp();
    const at::Tensor weights = shifted / shifted.sum(-1, true);
    const at::Tensor found = at::einsum("ahqk,akhc->aqhc", {weights, v});
    const at::Tensor gate = 1 / (1 + (-split("linear_g")).exp());
    return linear((gate * found).flatten(-2), name + "linear_o");
  }

  at::Tensor transition(const at::Tensor& x, const at::Tensor& mask,
                        const std::string& name) const {
    const at::Tensor hidden = linear(norm(x, name + "layer_norm"), name + "linear_1").clamp_min(0);
    return linear(hidden, name + "linear_2") * mask.unsqueeze(-1);
  }

  void update_msa(State& s, const std::string& at, int64_t index) const {
    const std::string row = at + "msa_att_row.", column = at + "msa_att_col._msa_att.";
    const at::Tensor bias = linear(norm(s.z, row + "layer_norm_z"), row + "linear_z");
    const at::Tensor rows = attend(norm(s.m, row + "layer_norm_m"), bias.permute({2, 0, 1}), s.msa,
                                   2 * heads_, row + "mha.");
    s.m = s.m + drop(rows, 0.15, index, 0);
    const at::Tensor turned = norm(s.m, column + "layer_norm_m").transpose(0, 1);
    s.m = s.m + attend(turned, {}, s.msa.t(), 2 * heads_, column + "mha.").transpose(0, 1);
    s.m = s.m + transition(s.m, s.msa, at + "msa_transition.");
    const std::string outer = at + "outer_product_mean.";
    const at::Tensor x = norm(s.m, outer + "layer_norm"), mask = s.msa.unsqueeze(-1);
    const at::Tensor product = at::einsum("sia,sjb->ijab", {mask * linear(x, outer + "linear_1"),
                                                            mask * linear(x, outer + "linear_2")});
    const at::Tensor count = at::einsum("si,sj->ij", {s.msa, s.msa}) + 1e-3;
    s.z = s.z + linear(product.flatten(-2), outer + "linear_out") / count.unsqueeze(-1);
  }

  at::Tensor multiply(const State& s, const std::string& name, bool outgoing) const {
    const at::Tensor x = norm(s.z, name + "layer_norm_in");
    const auto edges = [&](const std::string& which) {
      const at::Tensor gate = 1 / (1 + (-linear(x, name + "linear_" + which + "_g")).exp());
      return s.pairs.unsqueeze(-1) * gate * linear(x, name + "linear_" + which + "_p");
    };
    const at::Tensor product =
        at::einsum(outgoing ? "ikc,jkc->ijc" : "kic,kjc->ijc", {edges("a"), edges("b")});
    const at::Tensor gate = 1 / (1 + (-linear(x, name + "linear_g")).exp());
    return gate * linear(norm(product, name + "layer_norm_out"), name + "linear_z");
  }

  at::Tensor triangle(const at::Tensor& z, const at::Tensor& mask, const std::string& name) const {
    const at::Tensor x = norm(z, name + "layer_norm");
    return attend(x, linear(x, name + "linear").permute({2, 0, 1}), mask, heads_, name + "mha.");
  }

  const Parameters& parameters_;
  int64_t heads_;
  int64_t step_;
  double dropout_;
};

EvoformerOptions small_evoformer() {
  return {.blocks = 2,
          .width = 6,
          .heads = 3,
          .classes = 4,
          .dropout = 0.25,
          .dtype = base::Precision::kFloat64};
}

/// Values under which nothing is zero or the identity.
void randomise(layers::Model& model) {
  at::manual_seed(11);
  for (const at::Tensor& one : model.parameters()) {
    one.set_data(at::randn_like(one.detach()) * 0.4);
  }
}

/// Sample 5, of which residue 2 is away and single elements of other sequences are.
layers::Batch chain(int64_t sequences, int64_t residues) {
  at::manual_seed(4);
  at::Tensor inputs = at::randint(0, 20, {1, sequences, residues}, at::kLong);
  inputs.select(2, 2).fill_(-1);
  inputs[0][1][0] = inputs[0][sequences - 1][residues - 1] = -1;
  at::Tensor targets = at::randint(0, 4, {1, residues, residues}, at::kLong);
  return {.inputs = inputs,
          .targets = targets,
          .positions = {5, 6},
          .num_valid = residues * residues,
          .counters = {.seed = 7, .step = 3}};
}

layers::Batch graph(int64_t nodes) {
  at::manual_seed(4);
  layers::Batch batch = chain(4, nodes);
  batch.inputs = at::randint(0, 9, {1, nodes, nodes}, at::kLong);
  batch.inputs.select(1, 2).fill_(-1);
  batch.inputs.select(2, 2).fill_(-1);
  batch.inputs[0][0][1] = -1;
  return batch;
}

Parameters named(const layers::Model& model) {
  Parameters parameters;
  for (const auto& item : model.named_parameters()) parameters[item.key()] = item.value();
  return parameters;
}

/// Fills both gradients from one random weighting of the outputs: the model's, then the plain one's.
struct Compared {
  layers::Flow model, plain;
  Parameters model_gradients, plain_gradients;
};

Compared compare_with_plain(EvoformerOptions options, const layers::Batch& batch) {
  EvoformerImpl model(options);
  randomise(model);
  const int64_t last = model.num_layers() - 1;
  const layers::Flow first = model.forward({0, 1}, {}, batch);
  Compared both;
  both.model = model.forward({1, last}, first, batch);
  at::manual_seed(8);
  layers::Flow weights;
  for (const at::Tensor& one : both.model) weights.push_back(at::randn_like(one));
  const auto backward = [&](const layers::Flow& flow, Parameters& gradients) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < flow.size(); ++i) sum = sum + (flow[i] * weights[i]).sum();
    model.zero_grad();
    sum.backward({}, /*retain_graph=*/true);
    for (const auto& [name, tensor] : named(model)) {
      if (name.starts_with("evoformer.")) gradients[name] = tensor.grad().clone();
    }
  };
  backward(both.model, both.model_gradients);
  const Parameters parameters = named(model);
  const PlainEvoformer plain(parameters, options.heads, batch.counters.step, options.dropout);
  const at::Tensor there = batch.inputs[0].ge(0).to(at::kDouble);
  PlainEvoformer::State state;
  state.z = first.back()[0];
  state.pairs = options.has_msa ? at::outer(there[0], there[0]) : there;
  if (options.has_msa) state.m = first[0][0], state.msa = there;
  for (int64_t i = 0; i < options.blocks; ++i) plain.block(state, i);
  if (options.has_msa) both.plain.push_back(state.m.unsqueeze(0));
  both.plain.push_back(state.z.unsqueeze(0));
  backward(both.plain, both.plain_gradients);
  return both;
}

/// Of the largest expected value. Two orders of sums differ by the number of terms, some 10^3, times 2^-53.
double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

constexpr double kTolerance = 1e-11;  // 10^3 terms, 10 operations deep, in float64

void expect_equal(const Compared& both) {
  for (size_t i = 0; i < both.model.size(); ++i) {
    EXPECT_LT(relative_error(both.model[i], both.plain[i]), kTolerance) << "output " << i;
  }
  ASSERT_EQ(both.model_gradients.size(), both.plain_gradients.size());
  for (const auto& [name, expected] : both.plain_gradients) {
    const at::Tensor& found = both.model_gradients.at(name);
    if (name.ends_with("msa_att_row.layer_norm_z.bias")) {
      // A shift of all logits: its gradient is zero, and both are rounding errors of it.
      EXPECT_LT(found.abs().max().item<double>(), 1e-9) << name;
      continue;
    }
    EXPECT_GT(expected.abs().max().item<double>(), 1e-6) << name << " is not asked";
    EXPECT_LT(relative_error(found, expected), kTolerance) << name;
  }
}

TEST(Evoformer, IsTheSupplementsStackWithEveryGradient) {
  expect_equal(compare_with_plain(small_evoformer(), chain(5, 7)));
}

TEST(Evoformer, WithoutDropoutToo) {
  EvoformerOptions options = small_evoformer();
  options.dropout = 0;
  expect_equal(compare_with_plain(options, chain(4, 6)));
}

TEST(Evoformer, OfPairsAloneWithAndWithoutAttention) {
  EvoformerOptions options = small_evoformer();
  options.has_msa = false;
  expect_equal(compare_with_plain(options, graph(7)));
  options.has_attention = false;
  expect_equal(compare_with_plain(options, graph(7)));
}

/// By a swap of what differs: the plain block would not notice one that is missing from both.
TEST(Evoformer, OutgoingIsNotIncoming) {
  EvoformerImpl model(small_evoformer());
  randomise(model);
  const layers::Batch batch = chain(4, 6);
  const at::Tensor before = model.forward({0, 3}, {}, batch).back();
  const Parameters parameters = named(model);
  const std::string at = "evoformer.blocks.1.pair_stack.";
  for (const auto& [name, tensor] : parameters) {
    if (!name.starts_with(at + "tri_mul_out")) continue;
    const at::Tensor& other = parameters.at(
        at + "tri_mul_in" + name.substr(at.size() + std::string("tri_mul_out").size()));
    const at::Tensor kept = tensor.detach().clone();
    tensor.set_data(other.detach());
    other.set_data(kept);
  }
  EXPECT_GT(relative_error(model.forward({0, 3}, {}, batch).back(), before), 1e-3);
}

TEST(Evoformer, ASampleOfABatchIsThatSampleAlone) {
  const auto make = [] {
    auto model = make_evoformer(small_evoformer());
    randomise(*model);
    return model;
  };
  const auto model = make();
  const layers::Batch one = chain(4, 6);
  layers::Batch two = one;
  two.inputs = at::cat({at::randint(0, 20, {1, 4, 6}, at::kLong), one.inputs});
  two.positions = {4, 6};
  const at::Tensor alone = model->forward({0, 4}, {}, one).at(0);
  const at::Tensor both = model->forward({0, 4}, {}, two).at(0);
  EXPECT_LT(relative_error(both.narrow(0, 1, 1), alone), kTolerance);
}

TEST(Evoformer, HasOpenFoldsNamesAndSizes) {
  EvoformerOptions options{.blocks = 1};
  const auto model = make_evoformer(options);
  std::map<std::string, std::vector<int64_t>> sizes;
  int64_t elements = 0;
  for (const auto& item : model->named_parameters()) {
    if (!item.key().starts_with("evoformer.blocks.0.")) continue;
    sizes[item.key().substr(19)] = item.value().sizes().vec();
    elements += item.value().numel();
  }
  EXPECT_EQ(sizes.size(), 93U);
  EXPECT_EQ(elements, 1829952);
  const std::map<std::string, std::vector<int64_t>> some = {
      {"msa_att_row.linear_z.weight", {8, 128}},
      {"msa_att_row.mha.linear_o.bias", {256}},
      {"msa_att_col._msa_att.mha.linear_g.bias", {256}},
      {"msa_transition.linear_1.weight", {1024, 256}},
      {"outer_product_mean.linear_out.weight", {128, 1024}},
      {"pair_stack.tri_mul_out.linear_a_p.weight", {128, 128}},
      {"pair_stack.tri_att_end.linear.weight", {4, 128}},
      {"pair_stack.pair_transition.linear_2.weight", {128, 512}}};
  for (const auto& [name, shape] : some) EXPECT_EQ(sizes.at(name), shape) << name;
  EXPECT_FALSE(sizes.contains("pair_stack.tri_att_start.mha.linear_q.bias"));
}

TEST(Evoformer, BeginsAsAlphaFoldDoes) {
  EvoformerOptions options{.blocks = 1};
  const auto parameters = make_evoformer(options)->named_parameters();
  const std::string at = "evoformer.blocks.0.";
  for (const char* zero :
       {"msa_att_row.mha.linear_o.weight", "msa_transition.linear_2.weight",
        "outer_product_mean.linear_out.weight", "pair_stack.tri_mul_in.linear_z.weight",
        "pair_stack.tri_mul_in.linear_g.weight"}) {
    EXPECT_EQ(parameters[at + zero].abs().max().item<float>(), 0) << zero;
  }
  EXPECT_TRUE(parameters[at + "pair_stack.tri_mul_in.linear_g.bias"].eq(1).all().item<bool>());
  // Deviations, each of 10^4 values or more: within 5 of their errors, 1 / sqrt(2 x 10^4).
  const auto deviation = [&](const char* name) {
    return parameters[at + name].std().item<double>();
  };
  EXPECT_NEAR(deviation("msa_transition.linear_1.weight") / std::sqrt(2.0 / 256), 1, 0.035);
  EXPECT_NEAR(deviation("pair_stack.tri_mul_out.linear_a_p.weight") / std::sqrt(1.0 / 128), 1,
              0.035);
  EXPECT_NEAR(deviation("msa_att_row.mha.linear_q.weight") / std::sqrt(2.0 / 512), 1, 0.035);
  const at::Tensor uniform = parameters[at + "msa_att_row.mha.linear_q.weight"];
  EXPECT_LE(uniform.abs().max().item<double>(), std::sqrt(6.0 / 512));
  const at::Tensor cut = parameters[at + "msa_transition.linear_1.weight"];
  EXPECT_LE(cut.abs().max().item<double>(), 2 * std::sqrt(2.0 / 256) / 0.8796);
}

TEST(Evoformer, RecomputationHasTheSameGradients) {
  const auto gradients = [](bool recompute) {
    const auto model = make_evoformer(small_evoformer());
    randomise(*model);
    std::vector<layers::LayerScope> scopes;
    if (recompute) scopes.push_back(parallel::recompute(model->recomputed_layers()));
    model->loss_sum(chain(4, 6), scopes).sum.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& one : model->parameters()) all.push_back(one.grad());
    return all;
  };
  const auto kept = gradients(false), again = gradients(true);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], again[i])) << i;
}

/// One row at a time, and two with a rest of one; of 7 rows a logit row has 2 x 6 x 7 x 7 x 8 bytes.
TEST(Evoformer, ChunksOfRowsHaveTheSameOutputsAndGradients) {
  struct Pass {
    layers::Flow flow;
    std::vector<at::Tensor> gradients;
  };
  const auto pass = [](int64_t chunk_bytes, bool recompute) {
    EvoformerOptions options = small_evoformer();
    options.chunk_bytes = chunk_bytes;
    const auto model = make_evoformer(options);
    randomise(*model);
    std::vector<layers::LayerScope> scopes;
    if (recompute) scopes.push_back(parallel::recompute(model->recomputed_layers()));
    Pass all{model->forward({0, 3}, {}, chain(5, 7), scopes), {}};
    at::manual_seed(8);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const at::Tensor& one : all.flow) sum = sum + (one * at::randn_like(one)).sum();
    sum.backward();
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (const at::Tensor& one : model->layer_parameters(layer)) {
        all.gradients.push_back(one.grad());
      }
    }
    return all;
  };
  const Pass whole = pass(0, false);
  for (const int64_t bytes : {int64_t{1}, int64_t{10000}}) {
    const Pass chunks = pass(bytes, bytes > 1);
    for (size_t i = 0; i < whole.flow.size(); ++i) {
      EXPECT_LT(relative_error(chunks.flow[i], whole.flow[i]), kTolerance) << i;
    }
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      if (whole.gradients[i].abs().max().item<double>() < 1e-9) continue;  // zero but for rounding
      EXPECT_LT(relative_error(chunks.gradients[i], whole.gradients[i]), kTolerance) << i;
    }
  }
}

TEST(Evoformer, ResiduesAndSequencesThatAreNotThereChangeNothing) {
  const auto model = make_evoformer(small_evoformer());
  randomise(*model);
  layers::Batch batch = chain(4, 6);
  const at::Tensor alone = model->forward({0, 4}, {}, batch).at(0);
  batch.inputs = at::constant_pad_nd(batch.inputs, {0, 2, 0, 3}, -1);
  model->eval();
  const at::Tensor padded = model->forward({0, 4}, {}, batch).at(0);
  batch.inputs = batch.inputs.narrow(1, 0, 4).narrow(2, 0, 6);
  const at::Tensor expected = model->forward({0, 4}, {}, batch).at(0);
  const at::Tensor there = batch.inputs[0][0].ge(0).nonzero().flatten();
  const auto valid = [&](const at::Tensor& logits) {
    return logits[0].index_select(0, there).index_select(1, there);
  };
  EXPECT_LT(relative_error(valid(padded), valid(expected)), kTolerance);
  EXPECT_GT(relative_error(valid(alone), valid(expected)), 1e-3) << "dropout is seen";
}

TEST(Evoformer, TheLossIsTorchsOverPairsThatCount) {
  const auto model = make_evoformer(small_evoformer());
  randomise(*model);
  layers::Batch batch = chain(4, 6);
  const layers::Flow flow = model->forward({0, 4}, {}, batch);
  EXPECT_EQ(flow.at(0).sizes(), (std::vector<int64_t>{1, 6, 6, 4}));
  EXPECT_TRUE(at::equal(flow.at(0), flow.at(0).transpose(1, 2)));
  batch.targets.fill_(-3);
  batch.targets[0][1][2] = 3;
  const at::Tensor expected = -at::log_softmax(flow.at(0)[0][1][2], 0)[3];
  EXPECT_NEAR(model->loss(flow, batch).sum.item<double>(), expected.item<double>(), 1e-12);
}

TEST(Evoformer, PrecisionIsThatOfTheLikeliestPairs) {
  EvoformerOptions options = small_evoformer();
  options.classes = 2;
  const auto model = make_evoformer(options);
  layers::Batch batch{.targets = at::zeros({1, 4, 4}, at::kLong)};
  at::Tensor logits = at::zeros({1, 4, 4, 2}, at::kDouble);
  const auto set = [&](int64_t i, int64_t j, double score, int64_t contact) {
    logits[0][i][j][1] = logits[0][j][i][1] = score;
    batch.targets[0][i][j] = batch.targets[0][j][i] = contact;
  };
  set(0, 1, 5, 1);
  set(0, 2, 4, 0);
  set(1, 3, 3, 1);
  EXPECT_EQ(model->metric_name(), "precision");
  EXPECT_EQ(model->metric_sum({logits}, batch) / 16, 0.5) << "of the two likeliest pairs one";
}

TEST(Evoformer, RefusesSizesThatDoNotFit) {
  for (const auto& spoil : std::vector<void (*)(EvoformerOptions&)>{
           [](auto& o) { o.blocks = 0; }, [](auto& o) { o.heads = 4; },
           [](auto& o) { o.classes = 1; }, [](auto& o) { o.dropout = 1; }}) {
    EvoformerOptions options = small_evoformer();
    spoil(options);
    EXPECT_THROW(make_evoformer(options), Error);
  }
}

}  // namespace
}  // namespace hanji::models
