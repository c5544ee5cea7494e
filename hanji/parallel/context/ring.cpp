#include "hanji/parallel/context/ring.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/context/internal/ways.h"

namespace hanji::parallel::context {
namespace {

using layout::RingStep;

/// Calls that are under way at once.
constexpr int kBlocks = 0, kSums = 1;

c10::ScalarType merged_in(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Keys, or values, for each head of queries.
at::Tensor for_heads(const at::Tensor& keys, int64_t heads) {
  return keys.size(1) == heads ? keys : keys.repeat_interleave(heads / keys.size(1), 1);
}

/// The sum over the heads of queries that share one.
at::Tensor over_groups(const at::Tensor& gradient, int64_t heads) {
  return gradient.size(1) == heads ? gradient : gradient.unflatten(1, {heads, -1}).sum(2);
}

/// Blocks of keys and values that pass through all ranks: at step t rank r has those of rank r + t.
class Passage {
 public:
  explicit Passage(const Places& places) : axis_(places.axis), extents_(places.extents()) {}

  /// Begins the passage of what belongs to step `step`, [2, B, heads, tokens, width], to the one before.
  Axis::Passing begin(const at::Tensor& block, size_t step, int lane) const {
    const size_t ranks = extents_.size();
    std::vector<int64_t> sizes = block.sizes().vec();
    const int64_t beside = block.numel() / sizes[3];
    Extents elements;
    for (size_t rank = 0; rank < ranks; ++rank) {
      elements.push_back(extents_[(rank + step) % ranks] * beside);
    }
    sizes[3] = extents_[(axis_.rank() + step + 1) % ranks];
    return axis_.begin_from_next(block, sizes, elements, lane);
  }

 private:
  Axis axis_;
  Extents extents_;
};

/// Attention of some queries so far: normalised, and the logarithms of what it was divided by.
struct Attended {
  at::Tensor out, log_sums;
};

/// oneDNN describes each product of a head anew, which the flash kernel asks for one by one and which takes longer
/// than small products do: those of all heads together are described once.
bool multiplies_heads_together(const at::Tensor& queries, const at::Tensor& keys) {
  constexpr int64_t kSmallBlock = 128 * 128;
  return queries.scalar_type() == at::kFloat && queries.size(2) * keys.size(2) <= kSmallBlock &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
}

double scale_of(const at::Tensor& queries) {
  return 1 / std::sqrt(static_cast<double>(queries.size(3)));
}

/// Scores [B, H, M, N]; of later keys minus infinity.
at::Tensor scores_of(const at::Tensor& queries, const at::Tensor& keys, bool is_causal) {
  at::Tensor scores = at::matmul(queries * scale_of(queries), keys.transpose(2, 3));
  if (!is_causal) return scores;
  const at::Tensor later = at::ones({scores.size(2), scores.size(3)}, at::kBool).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

/// Of queries [B, H, M, d] and one block [2, B, K, N, d].
Attended attend(const at::Tensor& queries, const at::Tensor& block, bool is_causal) {
  const int64_t heads = queries.size(1);
  const at::Tensor keys = for_heads(block[0], heads), values = for_heads(block[1], heads);
  if (multiplies_heads_together(queries, keys)) {
    at::Tensor scores = scores_of(queries, keys, is_causal);
    const at::Tensor log_sums = at::logsumexp(scores, {3});
    return {at::matmul(scores.sub_(log_sums.unsqueeze(3)).exp_(), values), log_sums};
  }
  auto [out, log_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(queries, keys, values, 0.0, is_causal);
  return {out.to(merged_in(out)), log_sums};
}

/// Two softmaxes over different keys as one.
void merge(Attended& all, int64_t first_query, const Attended& more) {
  at::Tensor out = all.out.slice(2, first_query), log_sums = all.log_sums.slice(2, first_query);
  const at::Tensor both = at::logaddexp(log_sums, more.log_sums);
  out.mul_((log_sums - both).exp_().unsqueeze(-1));
  out.addcmul_(more.out, (more.log_sums - both).exp_().unsqueeze(-1));
  log_sums.copy_(both);
}

Attended attend_all(const Passage& ring, const std::vector<RingStep>& steps,
                    const at::Tensor& queries, const at::Tensor& own) {
  Attended all;
  at::Tensor block = own;
  for (size_t step = 0; step < steps.size(); ++step) {
    const RingStep& met = steps[step];
    std::optional<Axis::Passing> next;
    if (met.receives) next = ring.begin(block, step, kBlocks);
    const Attended more =
        attend(queries.slice(2, met.first_query), block.slice(3, 0, met.num_keys), met.is_own);
    if (step == 0) {
      all = more;
    } else {
      merge(all, met.first_query, more);
    }
    if (next) block = next->wait();
  }
  return all;
}

/// What backward knows of the queries' attention over all keys.
struct Known {
  at::Tensor g_out, queries, out, log_sums;
};

/// Of queries, keys and values of as many heads.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Source  Dao et al., FlashAttention, arXiv 2205.14135, algorithm 4.
Gradients gradients_of_all_heads(const Known& known, const at::Tensor& keys,
                                 const at::Tensor& values, bool is_causal) {
  const at::Tensor weights =
      scores_of(known.queries, keys, is_causal).sub_(known.log_sums.unsqueeze(3)).exp_();
  const at::Tensor mean = (known.g_out * known.out).sum(3, true);
  const at::Tensor g_scores = at::matmul(known.g_out, values.transpose(2, 3))
                                  .sub_(mean)
                                  .mul_(weights)
                                  .mul_(scale_of(known.queries));
  return {at::matmul(g_scores, keys), at::matmul(g_scores.transpose(2, 3), known.queries),
          at::matmul(weights.transpose(2, 3), known.g_out)};
}

/// Adds to the gradient of queries. Result  that of the block, zero where nothing met it.
at::Tensor differentiate(const Known& known, const at::Tensor& block, const RingStep& met,
                         at::Tensor& g_queries) {
  const auto from = [&](const at::Tensor& all) { return all.slice(2, met.first_query); };
  const int64_t heads = known.queries.size(1), kv_heads = block.size(2);
  const at::Tensor some = block.slice(3, 0, met.num_keys);
  const at::Tensor keys = for_heads(some[0], heads), values = for_heads(some[1], heads);
  const Known met_by{from(known.g_out), from(known.queries), from(known.out), from(known.log_sums)};
  const auto [g_q, g_k, g_v] = multiplies_heads_together(met_by.queries, keys)
                                   ? gradients_of_all_heads(met_by, keys, values, met.is_own)
                                   : at::_scaled_dot_product_flash_attention_for_cpu_backward(
                                         met_by.g_out, met_by.queries, keys, values, met_by.out,
                                         met_by.log_sums, 0.0, met.is_own);
  from(g_queries).add_(g_q);
  at::Tensor gradient = at::zeros(block.sizes(), block.options().dtype(merged_in(block)));
  gradient[0].slice(2, 0, met.num_keys).copy_(over_groups(g_k, kv_heads));
  gradient[1].slice(2, 0, met.num_keys).copy_(over_groups(g_v, kv_heads));
  return gradient;
}

/// Of queries, and of this rank's keys and values. The sum of a block's gradient follows the block, and its
/// last exchange brings it home.
std::pair<at::Tensor, at::Tensor> gradients_of(const Passage& ring,
                                               const std::vector<RingStep>& steps,
                                               const Known& known, const at::Tensor& own) {
  at::Tensor g_queries =
      at::zeros(known.queries.sizes(), known.queries.options().dtype(merged_in(own)));
  at::Tensor block = own, at_home;
  std::optional<Axis::Passing> sums;
  for (size_t step = 0; step < steps.size(); ++step) {
    std::optional<Axis::Passing> next;
    if (steps[step].receives) next = ring.begin(block, step, kBlocks);
    at::Tensor gradient = differentiate(known, block, steps[step], g_queries);
    if (sums) gradient.add_(sums->wait());
    if (step == 0) {
      at_home = gradient;
    } else {
      sums = ring.begin(gradient, step, kSums);
    }
    if (next) block = next->wait();
  }
  return {g_queries, at_home.add_(sums->wait())};
}

struct RingHolder : torch::CustomClassHolder {
  RingHolder(const Places& places, RingLists walked) : ring(places), lists(std::move(walked)) {}
  Passage ring;
  RingLists lists;
};

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys_and_values,
                            const c10::intrusive_ptr<RingHolder>& held) {
    const at::Tensor own = keys_and_values.detach().contiguous();
    const Attended all = attend_all(held->ring, held->lists.forward, queries.detach(), own);
    const at::Tensor out = all.out.to(queries.scalar_type());
    context->save_for_backward({queries, own, out, all.log_sums});
    context->saved_data["ring"] = c10::IValue::make_capsule(held);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto capsule = context->saved_data["ring"].toCapsule();
    const auto& held = static_cast<const RingHolder&>(*capsule);
    const auto saved = context->get_saved_variables();
    auto [g_queries, g_own] =
        gradients_of(held.ring, held.lists.backward,
                     {gradients[0].contiguous(), saved[0], saved[2], saved[3]}, saved[1]);
    return {g_queries.to(saved[0].scalar_type()), g_own.to(saved[1].scalar_type()), at::Tensor()};
  }
};

}  // namespace

RingLists ring_lists(const Places& places) {
  const auto steps = layout::ring_steps(places.length, places.axis.rank(), places.axis.degree());
  return {steps, steps};
}

at::Tensor ring_product(const at::Tensor& queries, const at::Tensor& keys_and_values,
                        const Places& places, RingLists lists) {
  return RingAttention::apply(queries, keys_and_values,
                              c10::make_intrusive<RingHolder>(places, std::move(lists)));
}

at::Tensor internal::ring_attention(const at::Tensor& qkv, const compute::Weight& bias,
                                    const compute::AttentionOptions& options,
                                    const Places& places) {
  if (options.dropout > 0) {
    throw Error(
        base::unsupported("ring attention drops no attention weights; use Ulysses, or no dropout"));
  }
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const int64_t size = qkv.size(-1) / (options.heads + 2 * kv_heads);
  const at::Tensor heads =
      (qkv + bias.value.to(qkv.scalar_type())).unflatten(2, {-1, size}).transpose(1, 2);
  const auto parts = heads.split_with_sizes({options.heads, kv_heads, kv_heads}, 1);
  const at::Tensor out =
      ring_product(parts[0], at::stack({parts[1], parts[2]}), places, ring_lists(places));
  return out.transpose(1, 2).reshape({qkv.size(0), qkv.size(1), options.heads * size});
}

}  // namespace hanji::parallel::context
