#include "hanji/parallel/ddp/communication_hook.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "hanji/base/random.h"
#include "hanji/base/status.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/host_values.h"

namespace hanji::parallel {
namespace {

/// What a hook keeps per bucket from step to step; made when the bucket is first seen.
template <class State>
class ByBucket {
 public:
  State& operator[](size_t index) {
    if (index >= states_.size()) states_.resize(index + 1);
    return states_[index];
  }

 private:
  std::vector<State> states_;
};

at::Tensor buffer(int64_t count, at::ScalarType dtype, const GradientBucket& bucket,
                  const comm::Group& group) {
  return comm::zeros_on(bucket.flat.device(), {count}, dtype, group, "compressed gradients");
}

comm::AllReduceOptions call_of(const GradientBucket& bucket, const char* label) {
  return {.op = bucket.op, .tag = bucket.tag, .label = label};
}

CommunicationHook narrow_hook(at::ScalarType dtype, const std::string& name,
                              const std::string& cost) {
  auto buffers = std::make_shared<ByBucket<at::Tensor>>();
  const auto begin = [=](GradientBucket& bucket, const comm::Group& group) {
    at::Tensor& narrow = (*buffers)[bucket.index];
    if (!narrow.defined()) narrow = buffer(bucket.flat.numel(), dtype, bucket, group);
    // Divided before the sum, which could overflow otherwise.
    const bool mean = bucket.op == schedule::ReduceOp::kAvg;
    if (mean) bucket.flat.div_(group.size());
    narrow.copy_(bucket.flat);
    return comm::all_reduce(
        narrow, group,
        {.op = schedule::ReduceOp::kSum, .tag = bucket.tag, .label = "16-bit gradients"});
  };
  const auto finish = [=](GradientBucket& bucket, const comm::Group&) {
    bucket.flat.copy_((*buffers)[bucket.index]);
  };
  return {name, cost, begin, finish, [=] { return narrow_hook(dtype, name, cost); }};
}

struct Sparse {
  at::Tensor residual;
  at::Tensor indices, values;          ///< Of this rank.
  at::Tensor all_indices, all_values;  ///< Of all ranks, one row each.
};

void place(Sparse& sparse, double fraction, const GradientBucket& bucket,
           const comm::Group& group) {
  const int64_t count = bucket.flat.numel();
  const auto k =
      std::max<int64_t>(1, std::llround(std::ceil(fraction * static_cast<double>(count))));
  const auto dtype = bucket.flat.scalar_type();
  sparse.residual = at::zeros_like(bucket.flat);
  sparse.indices = buffer(k, at::kInt, bucket, group);
  sparse.values = buffer(k, dtype, bucket, group);
  sparse.all_indices = buffer(k * group.size(), at::kInt, bucket, group);
  sparse.all_values = buffer(k * group.size(), dtype, bucket, group);
}

struct Factor {
  size_t gradient = 0;  ///< Index into the bucket's gradients.
  int64_t rows = 0, columns = 0;
  at::Tensor q = {};       ///< [columns, rank], from the step before.
  at::Tensor p_part = {};  ///< Its part of the buffer of the first all_reduce: [rows, rank].
  at::Tensor q_part = {};  ///< Of the second.
};

struct LowRank {
  at::Tensor residual;
  std::vector<Factor> factors;
  std::vector<std::pair<size_t, at::Tensor>> whole;  ///< What travels as it is, with its part.
  at::Tensor first, second;                          ///< Buffers of the two all_reduces.
};

/// Standard normal numbers that depend on the seed and their place alone (Box and Muller).
at::Tensor normal_matrix(int64_t rows, int64_t columns, uint64_t key) {
  at::Tensor matrix = at::empty({rows, columns}, at::kDouble);
  auto* values = matrix.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto words = base::Philox::draw(key, 0, static_cast<uint64_t>(i));
    const double radius = std::sqrt(-2 * std::log(1 - base::uniform(words[0])));
    values[i] = radius * std::cos(2 * std::numbers::pi * base::uniform(words[1]));
  }
  return matrix;
}

class PowerSgd {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {}

  comm::Work begin(GradientBucket& bucket, const comm::Group& group) {
    LowRank& state = states_[bucket.index];
    if (!state.residual.defined()) place(state, bucket, group);
    bucket.flat.add_(state.residual);
    state.residual.copy_(bucket.flat);
    for (Factor& factor : state.factors) {
      factor.p_part.copy_(at::matmul(matrix(bucket, factor), factor.q));
    }
    for (auto& [index, part] : state.whole) part.copy_(bucket.gradients[index].reshape({-1}));
    return comm::all_reduce(state.first, group, call_of(bucket, "PowerSGD, first factors"));
  }

  void finish(GradientBucket& bucket, const comm::Group& group) {
    LowRank& state = states_[bucket.index];
    std::vector<at::Tensor> bases;
    for (Factor& factor : state.factors) {
      bases.push_back(std::get<0>(at::linalg_qr(factor.p_part)));
      factor.q_part.copy_(at::matmul(matrix(bucket, factor).t(), bases.back()));
    }
    if (!state.factors.empty()) {
      comm::all_reduce(state.second, group, call_of(bucket, "PowerSGD, second factors")).wait();
    }
    for (size_t i = 0; i < state.factors.size(); ++i) {
      Factor& factor = state.factors[i];
      factor.q.copy_(factor.q_part);
      matrix(bucket, factor).copy_(at::matmul(bases[i], factor.q_part.t()));
    }
    for (auto& [index, part] : state.whole) {
      bucket.gradients[index].copy_(part.view(bucket.gradients[index].sizes()));
    }
    keep_error(state, bucket, group);
  }

 private:
  static at::Tensor matrix(const GradientBucket& bucket, const Factor& factor) {
    return bucket.gradients[factor.gradient].view({factor.rows, factor.columns});
  }

  /// What this rank wanted to give, less its share of what all have got.
  void keep_error(LowRank& state, const GradientBucket& bucket, const comm::Group& group) const {
    const bool mean = bucket.op == schedule::ReduceOp::kAvg;
    state.residual.sub_(bucket.flat, mean ? 1.0 : 1.0 / group.size());
    for (const auto& [index, part] : state.whole) {
      const at::Tensor& gradient = bucket.gradients[index];
      const int64_t begin = gradient.storage_offset() - bucket.flat.storage_offset();
      state.residual.slice(0, begin, begin + gradient.numel()).zero_();
    }
  }

  void place(LowRank& state, const GradientBucket& bucket, const comm::Group& group) {
    state.residual = at::zeros_like(bucket.flat);
    int64_t first = 0, second = 0;
    for (size_t i = 0; i < bucket.gradients.size(); ++i) {
      const at::Tensor& gradient = bucket.gradients[i];
      const int64_t rows = gradient.dim() < 2 ? 1 : gradient.size(0);
      const int64_t columns = gradient.numel() / std::max<int64_t>(1, rows);
      if (gradient.dim() >= 2 && options_.rank * (rows + columns) < rows * columns) {
        state.factors.push_back({.gradient = i, .rows = rows, .columns = columns});
        first += rows * options_.rank;
        second += columns * options_.rank;
      } else {
        state.whole.emplace_back(i, at::Tensor());
        first += gradient.numel();
      }
    }
    const auto dtype = bucket.flat.scalar_type();
    state.first = buffer(first, dtype, bucket, group);
    state.second = buffer(second, dtype, bucket, group);
    cut(state, bucket);
  }

  void cut(LowRank& state, const GradientBucket& bucket) {
    int64_t first = 0, second = 0;
    const auto take = [](const at::Tensor& from, int64_t& begin, int64_t count) {
      begin += count;
      return from.slice(0, begin - count, begin);
    };
    for (Factor& factor : state.factors) {
      const int64_t r = options_.rank;
      const uint64_t key = base::mix(base::mix(options_.seed, bucket.index), factor.gradient);
      factor.q = normal_matrix(factor.columns, r, key).to(bucket.flat.options());
      factor.p_part = take(state.first, first, factor.rows * r).view({factor.rows, r});
      factor.q_part = take(state.second, second, factor.columns * r).view({factor.columns, r});
    }
    for (auto& [index, part] : state.whole) {
      part = take(state.first, first, bucket.gradients[index].numel());
    }
  }

  PowerSgdOptions options_;
  ByBucket<LowRank> states_;
};

}  // namespace

CommunicationHook fp16_hook() {
  return narrow_hook(at::kHalf, "fp16",
                     "gradients are rounded to 11 bits on each rank before they are added up");
}

CommunicationHook bf16_hook() {
  return narrow_hook(at::kBFloat16, "bf16",
                     "gradients are rounded to 8 bits on each rank before they are added up");
}

CommunicationHook top_k_hook(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw Error(base::invalid_argument("top_k_hook(" + std::to_string(fraction) +
                                       "): the fraction is above 0 and at most 1"));
  }
  auto states = std::make_shared<ByBucket<Sparse>>();
  const auto begin = [=](GradientBucket& bucket, const comm::Group& group) {
    Sparse& sparse = (*states)[bucket.index];
    if (!sparse.residual.defined()) place(sparse, fraction, bucket, group);
    sparse.residual.add_(bucket.flat);
    const at::Tensor indices = std::get<1>(at::topk(sparse.residual.abs(), sparse.indices.numel()));
    sparse.indices.copy_(indices);
    sparse.values.copy_(sparse.residual.index_select(0, indices));
    sparse.residual.index_fill_(0, indices, 0);
    (void)comm::all_gather(sparse.all_indices, sparse.indices, group,
                           {.tag = bucket.tag, .label = "indices of gradients"});
    return comm::all_gather(sparse.all_values, sparse.values, group,
                            {.tag = bucket.tag, .label = "largest gradients"});
  };
  const auto finish = [=](GradientBucket& bucket, const comm::Group& group) {
    const Sparse& sparse = (*states)[bucket.index];
    const int64_t k = sparse.indices.numel();
    bucket.flat.zero_();
    for (int64_t rank = 0; rank < group.size(); ++rank) {  // in one order: the same bits everywhere
      bucket.flat.index_add_(0, sparse.all_indices.slice(0, rank * k, (rank + 1) * k),
                             sparse.all_values.slice(0, rank * k, (rank + 1) * k));
    }
    if (bucket.op == schedule::ReduceOp::kAvg) bucket.flat.div_(group.size());
  };
  return {"top-k", "each rank sends its largest gradients now and the rest later", begin, finish,
          [=] { return top_k_hook(fraction); }};
}

CommunicationHook power_sgd_hook(const PowerSgdOptions& options) {
  if (options.rank < 1) {
    throw Error(base::invalid_argument("power_sgd_hook: rank " + std::to_string(options.rank) +
                                       "; it is at least 1"));
  }
  auto state = std::make_shared<PowerSgd>(options);
  return {
      "PowerSGD", "matrices are replaced by ones of rank " + std::to_string(options.rank),
      [state](GradientBucket& bucket, const comm::Group& group) {
        return state->begin(bucket, group);
      },
      [state](GradientBucket& bucket, const comm::Group& group) { state->finish(bucket, group); },
      [options] { return power_sgd_hook(options); }};
}

}  // namespace hanji::parallel
