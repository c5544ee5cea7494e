#include "hanji/train/observe.h"

#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <span>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/checkpoint/hash.h"
#include "hanji/checkpoint/safetensors.h"

namespace hanji::train {
namespace {

using checkpoint::TensorEntry;
using report::Quantity;

uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  return base::xxh3({static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()});
}

void add(std::vector<report::Digest>& digests, Quantity quantity,
         const std::vector<TensorEntry>& entries) {
  for (const auto& [name, tensor] : entries) digests.push_back({quantity, name, hash_of(tensor)});
}

Status keep(const std::filesystem::path& path, const JobView& job,
            const std::vector<TensorEntry>& gradients) {
  std::vector<TensorEntry> all = job.buffers;
  for (const auto& [name, tensor] : gradients) all.push_back({"gradient." + name, tensor});
  all.insert(all.end(), job.parameters.begin(), job.parameters.end());
  all.insert(all.end(), job.optimizer.begin(), job.optimizer.end());
  HANJI_ASSIGN_OR_RETURN(const auto views, checkpoint::views_of(all));
  return checkpoint::write_safetensors(path, views);
}

std::string hash_of(const std::vector<TensorEntry>& parameters,
                    const std::vector<TensorEntry>& optimizer) {
  return checkpoint::state_hash(checkpoint::views_of(parameters).or_throw(),
                                checkpoint::views_of(optimizer).or_throw());
}

}  // namespace

JobView view_of(const torch::nn::Module& model, const FlatState& state) {
  JobView view;
  for (const auto& item : model.named_buffers()) view.buffers.push_back({item.key(), item.value()});
  view.optimizer.push_back({"step", at::scalar_tensor(state.num_updates, at::kLong)});
  size_t i = 0;
  for (const auto& [name, tensor] : state.parameters) {
    const int64_t begin = state.layout.offsets[i];
    const int64_t end = begin + state.layout.sizes[i++];
    const auto piece = [&, &shape = tensor](const at::Tensor& flat) {
      return flat.slice(0, begin, end).view(shape.sizes());
    };
    view.parameters.push_back({name, tensor.detach()});
    if (state.gradients.defined()) view.gradients.push_back({name, piece(state.gradients)});
    for (const auto& [moment, flat] : state.moments) {
      view.optimizer.push_back({moment + "." + name, piece(flat)});
    }
  }
  return view;
}

std::vector<TensorEntry> model_of(const JobView& view) {
  std::vector<TensorEntry> model = view.parameters;
  model.insert(model.end(), view.buffers.begin(), view.buffers.end());
  return model;
}

void Observer::backward(int64_t grain, size_t parameter, const at::Tensor& gradient) {
  // A sum of hashes: parameters come in the order in which backward reaches them.
  const std::array<uint64_t, 2> both = {parameter, hash_of(gradient)};
  backwards_[grain] += base::xxh3(std::as_bytes(std::span(both)));
}

void Observer::summed(const std::vector<TensorEntry>& gradients) {
  add(gradients_, Quantity::kGradient, gradients);
  if (options_.keep_step != std::ssize(run_.steps)) return;
  for (const auto& [name, tensor] : gradients) kept_gradients_.push_back({name, tensor.clone()});
}

Status Observer::step(int64_t steps_done, const JobView& job, const StepTotals& totals) {
  report::ObservedStep seen{.step = steps_done, .parameters_sha256 = hash_of(model_of(job), {})};
  add(seen.digests, Quantity::kBuffer, job.buffers);
  if (steps_done > 0 && gradients_.empty()) add(gradients_, Quantity::kGradient, job.gradients);
  std::ranges::move(std::exchange(gradients_, {}), std::back_inserter(seen.digests));
  add(seen.digests, Quantity::kParameter, job.parameters);
  add(seen.digests, Quantity::kOptimizer, job.optimizer);
  if (steps_done > 0) {
    const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
    seen.digests.push_back({Quantity::kTotal, "loss", bits(totals.loss)});
    seen.digests.push_back({Quantity::kTotal, "gradient norm", bits(totals.gradient_norm)});
  }
  seen.backwards = std::exchange(backwards_, {});
  run_.steps.push_back(std::move(seen));
  if (options_.keep_step != steps_done) return {};
  return keep(options_.keep_file, job, kept_gradients_.empty() ? job.gradients : kept_gradients_);
}

report::ObservedRun Observer::finish(const JobView& job) {
  run_.state_sha256 = hash_of(model_of(job), job.optimizer);
  return std::move(run_);
}

}  // namespace hanji::train
