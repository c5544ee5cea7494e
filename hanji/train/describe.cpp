#include "hanji/train/describe.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <optional>

#include "hanji/base/status.h"
#include "hanji/lens/without_memory.h"
#include "hanji/parallel/recompute.h"
#include "hanji/plan/named_model.h"
#include "hanji/train/count_facts.h"

namespace hanji::train {
namespace {

constexpr const char* kCaller = "hanji::describe";
/// Batch normalisation takes more than one.
constexpr int64_t kProbed = 2;

/// Of `samples` samples, again from the first where there are fewer.
layers::Batch repeated(const layers::Batch& sample, int64_t samples) {
  const auto rows = [&](const at::Tensor& all) {
    if (!all.defined()) return at::empty({samples, 0});
    const at::Tensor index = at::arange(samples, at::kLong).remainder(all.size(0));
    return all.index_select(0, index.to(all.device())).contiguous();
  };
  layers::Batch batch{.inputs = rows(sample.inputs), .targets = rows(sample.targets)};
  batch.positions = {0, samples};
  batch.num_valid = sample.targets.defined() ? batch.targets.numel() : samples;
  return batch;
}

at::Tensor first_parameter(const torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  if (parameters.is_empty()) {
    throw Error(base::invalid_argument(
        fmt::format("{}: {} has no parameters; give a model that learns", kCaller, model.name())));
  }
  const at::Tensor& first = parameters[0].value();
  if (!first.is_cpu() && !first.is_meta()) {
    throw Error(base::unsupported(
        fmt::format("{}: parameters are on {}, where bytes are not counted; call to(torch::kCPU)",
                    kCaller, first.device().str())));
  }
  for (const auto& item : parameters) {
    if (item.value().scalar_type() == first.scalar_type()) continue;
    throw Error(base::invalid_argument(
        fmt::format("{}: parameter '{}' is {} and '{}' is {}; convert the model by to(dtype)",
                    kCaller, parameters[0].key(), c10::toString(first.scalar_type()), item.key(),
                    c10::toString(item.value().scalar_type()))));
  }
  return first;
}

plan::Precision precision_of(const at::Tensor& parameter) {
  switch (parameter.scalar_type()) {
    case at::kFloat: return plan::Precision::kFloat32;
    case at::kBFloat16: return plan::Precision::kBFloat16;
    case at::kDouble: return plan::Precision::kFloat64;
    default: break;
  }
  throw Error(base::unsupported(
      fmt::format("{}: parameters are {}; convert the model to float32, bfloat16 or float64",
                  kCaller, c10::toString(parameter.scalar_type()))));
}

void check_sample(const layers::Batch& sample) {
  const bool has_rows =
      sample.inputs.defined() && sample.inputs.dim() > 0 && sample.inputs.size(0) > 0 &&
      (!sample.targets.defined() ||
       (sample.targets.dim() > 0 && sample.targets.size(0) == sample.inputs.size(0)));
  if (has_rows) return;
  throw Error(
      base::invalid_argument(fmt::format("{}: inputs and targets are not of as many samples, at "
                                         "least one; give both a first dimension, "
                                         "as unsqueeze(0) does to one sample",
                                         kCaller)));
}

}  // namespace

std::string describe_model(layers::Model& model, const layers::Batch& sample) {
  check_sample(sample);
  const at::Tensor parameter = first_parameter(model);
  const auto read = [&](int64_t samples, layers::Batch& batch) {
    batch = repeated(sample, samples).to(parameter.device());
  };
  std::optional<lens::WithoutMemory> nothing_computed;
  if (parameter.is_meta()) nothing_computed.emplace();
  model.train();
  const plan::CountedModel counted{
      .precision = precision_of(parameter),
      .facts = count_facts(model, read, {}),
      .recomputed = count_facts(model, read, {parallel::recompute(model.recomputed_layers())})};
  return plan::to_json(counted);
}

std::string describe_layers(models::LayeredModule module, const layers::Batch& sample,
                            models::ModuleLoss loss) {
  check_sample(sample);
  const at::Tensor parameter = first_parameter(*module.root);
  if (!loss) {
    loss = [](const at::Tensor& output, const at::Tensor&) {
      return layers::LossSum{output.sum(), output.size(0)};
    };
  }
  std::optional<lens::WithoutMemory> nothing_computed;
  if (parameter.is_meta()) nothing_computed.emplace();
  models::ModuleModel model(std::move(module), std::move(loss), parameter.scalar_type(),
                            repeated(sample, kProbed).to(parameter.device()));
  return describe_model(model, sample);
}

}  // namespace hanji::train
