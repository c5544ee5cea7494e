#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/compute/apply.h"
#include "hanji/layout/placement.h"
#include "hanji/parallel/tensor/attention.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/embedding.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/loss.h"
#include "hanji/parallel/tensor/norm.h"
#include "hanji/parallel/tensor/regions.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::tensor {
namespace {

using test_net::refusal;
using testing::AllOf;
using testing::HasSubstr;

// Sizes that few degrees divide: 6 heads, 65 tokens, 10 positions.
constexpr int64_t kHeads = 6, kWidth = 24, kVocabulary = 65, kLength = 10, kBatch = 3;
constexpr int64_t kHead = kWidth / kHeads;
constexpr int kSteps = 10;
constexpr double kRate = 0.05;
constexpr double kDropped = 0.2;

const layout::PlacementTable& placements() {
  static const layout::PlacementTable table{
      {"table", {0}},          {"qkv*", {0, {kWidth, kWidth, kWidth}, kHead}},
      {"out", {1, {}, kHead}}, {"up*", {0}},
      {"down", {1}},           {"*", {}}};
  return table;
}

std::map<std::string, std::vector<int64_t>> shapes() {
  return {{"table", {kVocabulary, kWidth}}, {"position", {kLength, kWidth}},
          {"norm_1.weight", {kWidth}},      {"norm_1.bias", {kWidth}},
          {"qkv", {3 * kWidth, kWidth}},    {"qkv_bias", {3 * kWidth}},
          {"out", {kWidth, kWidth}},        {"out_bias", {kWidth}},
          {"norm_2.weight", {kWidth}},      {"norm_2.bias", {kWidth}},
          {"up", {4 * kWidth, kWidth}},     {"up_bias", {4 * kWidth}},
          {"down", {kWidth, 4 * kWidth}},   {"down_bias", {kWidth}},
          {"norm_f.weight", {kWidth}},      {"norm_f.bias", {kWidth}}};
}

using Tensors = std::map<std::string, at::Tensor>;

/// Values by formula, all of them different.
Tensors initial_values(at::ScalarType dtype) {
  Tensors values;
  int64_t seed = 0;
  for (const auto& [name, shape] : shapes()) {
    const int64_t count = c10::multiply_integers(shape);
    const auto index = at::arange(count, at::kDouble) + 1000 * seed++;
    values[name] = (index.sin() * 0.1 + (name.ends_with(".weight") ? 1 : 0)).view(shape).to(dtype);
  }
  return values;
}

at::Tensor named_part(const std::string& name, const at::Tensor& whole, int rank, int degree) {
  const layout::Placement placement = layout::placement_of(placements(), name).or_throw();
  return part_of(whole, placement, rank, degree).clone();
}

struct Batch {
  at::Tensor tokens, targets;
};

Batch batch_of(int step) {
  const auto index = at::arange(kBatch * kLength, at::kLong) + 7 * step;
  at::Tensor targets = (index * 5 + 3).remainder(kVocabulary);
  targets[1] = -1;  // does not count
  return {(index * 11).remainder(kVocabulary).view({kBatch, kLength}), targets};
}

/// One block of a GPT with its ends tied, made of parts, which drops embeddings, attention weights and
/// a branch; the stream is whole or cut by tokens.
template <class Stream>
class Net {
 public:
  Net(const Axis& axis, at::ScalarType dtype) : axis_(axis) {
    for (const auto& [name, whole] : initial_values(dtype)) {
      own_[name] = named_part(name, whole, axis.rank(), axis.degree()).requires_grad_();
    }
  }

  at::Tensor loss(const Batch& batch, int step) {
    const Extents rows = axis_.extents_of(kVocabulary);
    const auto found = to_stream(embedding(batch.tokens, cut<0>("table"), axis_, rows));
    const Typed<Stream> x =
        dropped(found + RowParameter<Stream>{{position(), {}}}, {1, step, 0, 0});
    auto first = norm(x, {}, "norm_1");
    const auto qkv = column_linear(to_columns(first.normed), cut<0>("qkv"));
    const auto mixed =
        causal_attention(qkv, cut<0>("qkv_bias"), {kHeads, {}, kDropped, {1, step, 0, 1}}, axis_);
    const auto out = to_stream(row_linear(mixed, cut<1>("out")));
    const auto branch = dropped(out + row("out_bias"), {1, step, 0, 2});
    auto second = norm(first.sum, {branch.value(), {}}, "norm_2");
    const auto up = column_linear(to_columns(second.normed), cut<0>("up"));
    const auto down = to_stream(row_linear(bias_gelu(up, cut<0>("up_bias")), cut<1>("down")));
    const auto last = norm(second.sum, {down.value(), row("down_bias")}, "norm_f");
    const auto logits = column_linear(to_columns(last.normed), cut<0>("table"));
    const Typed<Features> flat(logits.value().reshape({-1, logits.value().size(-1)}));
    return cross_entropy_sum(flat, batch.targets, axis_, rows).value();
  }

  void train() {
    for (int step = 0; step < kSteps; ++step) {
      losses.push_back(loss(batch_of(step), step));
      (losses.back() / (kBatch * kLength)).backward();
      const at::NoGradGuard no_grad;
      for (auto& [name, value] : own_) {
        value.sub_(value.grad(), kRate);
        value.mutable_grad() = at::Tensor();
      }
    }
  }

  Tensors values() const { return own_; }
  std::vector<at::Tensor> losses;

 private:
  static constexpr bool kIsCut = std::is_same_v<Stream, Tokens>;

  template <int64_t kDim>
  Parameter<Sharded<kDim>> cut(const std::string& name) {
    return {{own_.at(name), {}}};
  }
  RowParameter<Stream> row(const std::string& name) {
    const Parameter<Replicated> whole{{own_.at(name), {}}};
    if constexpr (kIsCut) return enter(whole, axis_);
    return RowParameter<Stream>{whole.weight};
  }
  /// Of the tokens that this rank has.
  at::Tensor position() {
    if constexpr (!kIsCut) return own_.at("position");
    const auto tokens = tensor::cut<-2>(Typed<Replicated>(own_.at("position")), axis_, tokens_);
    return tokens.value();
  }
  Typed<Stream> dropped(const Typed<Stream>& x, const compute::DropoutKey& key) {
    return dropout(x, kDropped, key, axis_, tokens_);
  }
  Normed<Stream> norm(const Typed<Stream>& x, const Delta<Stream>& delta, const std::string& name) {
    return add_layer_norm(x, delta, {row(name + ".weight"), row(name + ".bias")},
                          x.value().scalar_type());
  }
  Typed<Stream> to_stream(const Typed<Partial>& x) {
    if constexpr (kIsCut) return scatter_sum<-2>(x, axis_, tokens_);
    if constexpr (!kIsCut) return sum(x, axis_);
  }
  Typed<Broadcast> to_columns(const Typed<Stream>& x) {
    if constexpr (kIsCut) return gather(x, axis_, tokens_);
    if constexpr (!kIsCut) return enter(x, axis_);
  }

  const Axis axis_;
  const Extents tokens_ = axis_.extents_of(kLength);
  Tensors own_;
};

/// Float64 sums in another order: some thousand roundings of 1e-16 of what is summed, through ten steps
/// whose rate lets them grow little.
constexpr double kTolerance = 1e-12;

template <class Stream>
void expect_one_processs_values(int degree) {
  Net<Replicated> alone(Axis(), at::kDouble);
  alone.train();
  test::run_ranks(degree, [&](world::World& world) {
    Net<Stream> net(Axis(world.group()), at::kDouble);
    net.train();
    for (const auto& [name, value] : net.values()) {
      const at::Tensor expected = named_part(name, alone.values().at(name), world.rank(), degree);
      const double apart = (value - expected).abs().max().template item<double>();
      EXPECT_LE(apart, kTolerance * expected.abs().max().template item<double>())
          << name << ", rank " << world.rank() << " of " << degree;
    }
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(net.losses[step].template item<double>(),
                  alone.losses[step].template item<double>(), 1e-11);
    }
  });
}

TEST(TensorParts, TrainAsOneProcessWhateverTheDegree) {
  for (const int degree : {1, 2, 3, 4}) expect_one_processs_values<Replicated>(degree);
}

TEST(TensorParts, TrainAsOneProcessWithTokensCut) {
  for (const int degree : {1, 2, 3, 4}) expect_one_processs_values<Tokens>(degree);
}

TEST(TensorParts, OnOneRankAreThePlainOperationsBitForBit) {
  Net<Replicated> whole(Axis(), at::kFloat);
  Net<Tokens> cut(Axis(), at::kFloat);
  whole.train();
  cut.train();
  for (const auto& [name, value] : whole.values()) {
    EXPECT_TRUE(at::equal(value, cut.values().at(name))) << name;
  }
  const auto x = at::randn({5, kWidth});
  const auto weight = whole.values().at("up").detach();
  EXPECT_TRUE(at::equal(column_linear(enter(Typed<Replicated>(x), Axis()), {{weight, {}}}).value(),
                        compute::linear(x, {weight, {}})));
}

/// By each library of matmuls, whose kernels depend on sizes in their own ways.
class TensorPartsBy : public testing::TestWithParam<base::Gemm> {};

TEST_P(TensorPartsBy, DropTheirPartOfWhatOneRankDrops) {
  base::KernelChoice kernels;
  kernels.gemm = GetParam();
  const compute::AppliedForAWhile applied(kernels, at::get_num_threads());
  const compute::DropoutKey key{5, 7, 10, 2, {}};
  const auto x = at::ones({kBatch, kLength, kWidth});
  const auto whole = compute::dropout(x, kDropped, key);
  const auto qkv = at::arange(kBatch * kLength * 3 * kWidth).sin().view({kBatch, kLength, -1});
  const auto attended =
      compute::causal_attention(qkv, {at::zeros({3 * kWidth}), {}}, {kHeads, {}, kDropped, key});
  test::run_ranks(4, [&](world::World& world) {
    const Axis axis(world.group());
    const Extents tokens = axis.extents_of(kLength), columns = axis.extents_of(kWidth, kHead);
    const auto drop = [&]<class Placement>(Placement, int64_t dim, const Extents& each) {
      const Typed<Placement> own(axis.own_part(x, dim, each));
      return dropout(own, kDropped, key, axis, each).value();
    };
    EXPECT_TRUE(at::equal(drop(Tokens{}, -2, tokens), axis.own_part(whole, -2, tokens)));
    EXPECT_TRUE(at::equal(drop(Features{}, -1, columns), axis.own_part(whole, -1, columns)));
    EXPECT_TRUE(at::equal(dropout(Typed<Replicated>(x), kDropped, key, axis).value(), whole));
    const auto here = named_part("qkv", qkv.permute({2, 0, 1}), axis.rank(), axis.degree());
    const Parameter<Sharded<0>> bias{{at::zeros({here.size(0)}), {}}};
    const auto mixed = causal_attention(Typed<Features>(here.permute({1, 2, 0})), bias,
                                        {kHeads, {}, kDropped, key}, axis);
    const auto expected = axis.own_part(attended, -1, columns);
    EXPECT_TRUE(at::equal(mixed.value(), expected));
  });
}

INSTANTIATE_TEST_SUITE_P(Libraries, TensorPartsBy,
                         testing::Values(base::Gemm::kMkl, base::Gemm::kOneDnn),
                         [](const auto& info) { return std::string(base::name_of(info.param)); });

TEST(TensorParts, AttentionOfGroupsIsCutByItsHeadsOfKeysAndValues) {
  constexpr int64_t kKeys = 3 * kHead;  // two heads of queries share each
  const layout::Placement placement{0, {kWidth, kKeys, kKeys}, kHead};
  const auto qkv = at::arange(kBatch * kLength * (kWidth + 2 * kKeys)).sin();
  const auto x = qkv.view({kBatch, kLength, -1}).requires_grad_();
  const compute::AttentionOptions options{kHeads, {}, 0, {}, 3};
  const auto whole = compute::causal_attention(x, {at::zeros({x.size(2)}), {}}, options);
  whole.sum().backward();
  test::run_ranks(3, [&](world::World& world) {
    const Axis axis(world.group());
    const auto own_columns = [&](const at::Tensor& of) {
      return part_of(of, {2, placement.segments, placement.unit}, axis.rank(), axis.degree());
    };
    const auto own = own_columns(x.detach()).requires_grad_();
    const Parameter<Sharded<0>> bias{{at::zeros({own.size(2)}), {}}};
    const auto mixed = causal_attention(Typed<Features>(own), bias, options, axis);
    mixed.value().sum().backward();
    EXPECT_TRUE(at::equal(mixed.value(), axis.own_part(whole.detach(), -1)));
    EXPECT_TRUE(at::equal(own.grad(), own_columns(x.grad())));
  });
}

TEST(TensorParts, MovedWeightsGiveWhatMovedActivationsGive) {
  test::run_ranks(3, [](world::World& world) {
    const Axis axis(world.group());
    const auto whole = at::arange(35, at::kDouble).sin().view({7, 5});
    const auto rows = at::arange(50, at::kDouble).cos().view({10, 5});
    const Extents outputs = axis.extents_of(7), tokens = axis.extents_of(10);
    const auto own = axis.own_part(whole, 0, outputs).requires_grad_();
    const auto x = axis.own_part(rows, 0, tokens).requires_grad_();
    const auto y =
        linear(Typed<Tokens>(x), gather(Parameter<Sharded<0>>{{own, {}}}, axis, outputs));
    y.value().square().sum().backward();
    const auto all = whole.clone().requires_grad_(), all_rows = rows.clone().requires_grad_();
    all_rows.mm(all.t()).square().sum().backward();
    const auto apart = [&](const at::Tensor& part, const at::Tensor& expected,
                           const Extents& each) {
      return (part - axis.own_part(expected, 0, each)).abs().max().item<double>();
    };
    EXPECT_LT(apart(own.grad(), all.grad(), outputs), 1e-12);
    EXPECT_LT(apart(x.grad(), all_rows.grad(), tokens), 1e-12);
  });
}

TEST(TensorParts, ATokenOrTargetOutsideTheWholeVocabularyIsNamed) {
  test::run_ranks(2, [](world::World& world) {
    const Axis axis(world.group());
    const Extents rows = axis.extents_of(5);
    const auto table = at::zeros({rows[axis.rank()], 2});
    EXPECT_THAT(refusal([&] {
                  (void)embedding(at::full({1, 1}, 5, at::kLong), {{table, {}}}, axis, rows);
                }),
                AllOf(HasSubstr("token 5"), HasSubstr("[0, 5)")));
    EXPECT_THAT(refusal([&] {
                  (void)cross_entropy_sum(Typed<Features>(table.t().contiguous()),
                                          at::full({2}, 7, at::kLong), axis, rows);
                }),
                AllOf(HasSubstr("target 7"), HasSubstr("[-1, 5)")));
    EXPECT_THAT(refusal([&] { (void)axis.gather(table, 0, {1, 1, 1}); }), HasSubstr("2 ranks"));
  });
}

}  // namespace
}  // namespace hanji::parallel::tensor
