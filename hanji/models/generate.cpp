#include "hanji/models/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hanji/base/at_end.h"
#include "hanji/base/random.h"
#include "hanji/base/status.h"

namespace hanji::models {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(base::invalid_argument("generate: " + message));
}

void check(std::span<const int64_t> prompt, const GenerateOptions& options) {
  require(!prompt.empty(), "the prompt is empty; give at least one token");
  const auto not_negative = [](const char* name, auto value) {
    const bool holds = value >= 0 && std::isfinite(static_cast<double>(value));
    require(holds, fmt::format("{} is {}; give a finite number, at least 0", name, value));
  };
  not_negative("num_tokens", options.num_tokens);
  not_negative("top_k", options.top_k);
  not_negative("temperature", options.temperature);
  for (const int64_t token : prompt) {
    require(token >= 0 && token < options.vocabulary, "token " + std::to_string(token) +
                                                          " is outside the vocabulary of " +
                                                          std::to_string(options.vocabulary));
  }
}

std::vector<double> next_logits(layers::Model& model, std::span<const int64_t> tokens,
                                const GenerateOptions& options) {
  const auto window = tokens.last(std::min<size_t>(tokens.size(), options.block));
  const at::Tensor input = at::empty({1, static_cast<int64_t>(window.size())}, at::kLong);
  std::copy(window.begin(), window.end(), input.mutable_data_ptr<int64_t>());
  layers::Batch batch;
  batch.inputs = input.to(options.device);
  const layers::Flow last_flow =
      options.forward ? options.forward(batch)
                      : model.forward({0, model.num_layers()}, {}, batch, options.scopes);
  const at::Tensor logits = last_flow.at(0).select(1, -1);
  const at::Tensor last = logits.to(at::kCPU, at::kDouble).contiguous();
  const auto* values = last.const_data_ptr<double>();
  return {values, values + last.numel()};
}

/// Ids by falling logit, ties by id, cut after the k-th.
std::vector<int64_t> likeliest(const std::vector<double>& logits, int64_t top_k) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (top_k > 0 && top_k < static_cast<int64_t>(ids.size())) ids.resize(top_k);
  return ids;
}

int64_t choose(const std::vector<double>& logits, const GenerateOptions& options, uint64_t draw) {
  const std::vector<int64_t> ids = likeliest(logits, options.top_k);
  if (options.temperature == 0) return ids.front();
  std::vector<double> weights;
  for (const int64_t id : ids) {
    weights.push_back(std::exp((logits[id] - logits[ids.front()]) / options.temperature));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = base::uniform(base::Philox::draw(options.seed, 0, draw)[0]) * total;
  for (size_t i = 0; i < ids.size(); ++i) {
    left -= weights[i];
    if (left < 0) return ids[i];
  }
  return ids.back();
}

}  // namespace

std::vector<int64_t> generate(layers::Model& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options) {
  check(prompt, options);
  const at::NoGradGuard no_grad;
  const base::AtEnd restore([&, training = model.is_training()] { model.train(training); });
  model.eval();
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.num_tokens; ++i) {
    tokens.push_back(choose(next_logits(model, tokens, options), options, i));
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return tokens;
}

}  // namespace hanji::models
