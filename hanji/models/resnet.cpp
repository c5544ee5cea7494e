#include "hanji/models/resnet.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "hanji/base/status.h"
#include "hanji/compute/convolution.h"
#include "hanji/models/internal/initial.h"
#include "hanji/models/internal/numbers.h"

namespace hanji::models {
namespace {

using torch::nn::Module;

constexpr int64_t kExpansion = 4;  // of a bottleneck's last convolution
constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;
constexpr double kHeadDeviation = 0.01;

struct Convolution {
  at::Tensor weight;
  int64_t stride = 1;

  at::Tensor operator()(const at::Tensor& x) const {
    return compute::convolution(x, weight, {.stride = stride, .padding = weight.size(2) / 2});
  }
};

/// Batch normalisation. `seen` has the mean and the unbiased variance of its last batch; made again
/// from the same batch, they are the same.
struct BatchNorm {
  at::Tensor weight, bias, running_mean, running_var;
  mutable at::Tensor seen_mean, seen_var;

  int64_t channels() const { return weight.numel(); }

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    if (!training) {
      return at::batch_norm(x, weight, bias, running_mean, running_var, false, kMomentum, kEpsilon,
                            false);
    }
    auto [y, mean, inverse] =
        at::native_batch_norm(x, weight, bias, {}, {}, true, kMomentum, kEpsilon);
    note(x, mean, inverse);
    return y;
  }

 private:
  void note(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse) const {
    const at::NoGradGuard no_grad;
    const auto count = static_cast<double>(x.numel() / channels());
    seen_mean = mean.detach().to(at::kDouble);
    const at::Tensor variance = inverse.detach().to(at::kDouble).pow(-2) - kEpsilon;
    seen_var = variance.clamp_min(0) * (count / std::max(1.0, count - 1));
  }
};

/// A convolution and the normalisation after it.
struct Unit {
  Convolution convolution;
  BatchNorm norm;

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    return norm(convolution(x), training);
  }
};

struct Residual {
  std::vector<Unit> units;
  std::vector<Unit> shortcut;  // none where the input can be added as it is

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    at::Tensor y = x;
    for (size_t i = 0; i < units.size(); ++i) {
      y = units[i](y, training);
      if (i + 1 < units.size()) y = y.relu_();
    }
    return y.add_(shortcut.empty() ? x : shortcut[0](x, training)).relu_();
  }
};

/// Registers parameters and buffers under torchvision's names and fills them.
class ResNetBuilder {
 public:
  explicit ResNetBuilder(const ResNetOptions& options) : options_(options) {}

  /// The layer that reads what follows.
  void begin_layer(int64_t layer) { is_here_ = is_own(options_.own_layers, {layer}); }

  Module& child(Module& parent, const std::string& name) const {
    return *parent.register_module(name, std::make_shared<Module>());
  }

  at::Tensor normal(Module& parent, const std::string& path, at::IntArrayRef sizes,
                    double deviation) const {
    if (!is_here_) return parent.register_parameter("weight", sizes_alone(sizes, dtype()));
    auto tensor = at::empty(sizes, dtype());
    fill_normal(tensor, deviation, options_.seed, path);
    return parent.register_parameter("weight", tensor.to(options_.device));
  }

  at::Tensor constant(int64_t size, double value) const {
    return at::full({size}, value, dtype()).to(options_.device);
  }

  struct Kernel {
    int64_t inputs, outputs, size;
    int64_t stride = 1;
  };

  /// `names`: of the convolution and of the normalisation, below `path`.
  Unit unit(Module& parent, const std::string& path, std::array<std::string, 2> names,
            const Kernel& kernel) const {
    const auto fan_out = static_cast<double>(kernel.outputs * kernel.size * kernel.size);
    Unit unit;
    unit.convolution = {
        normal(child(parent, names[0]), path + names[0] + ".weight",
               {kernel.outputs, kernel.inputs, kernel.size, kernel.size}, std::sqrt(2 / fan_out)),
        kernel.stride};
    auto& norm = child(parent, names[1]);
    unit.norm.weight = norm.register_parameter("weight", constant(kernel.outputs, 1));
    unit.norm.bias = norm.register_parameter("bias", constant(kernel.outputs, 0));
    unit.norm.running_mean = norm.register_buffer("running_mean", constant(kernel.outputs, 0));
    unit.norm.running_var = norm.register_buffer("running_var", constant(kernel.outputs, 1));
    return unit;
  }

  int64_t outputs_of(int64_t width) const {
    return options_.bottleneck ? kExpansion * width : width;
  }

  /// A block of `width` channels on `inputs`.
  Residual block(Module& parent, const std::string& path, int64_t inputs, int64_t width,
                 int64_t stride) const {
    std::vector<Kernel> kernels = {{inputs, width, 3, stride}, {width, width, 3}};
    if (options_.bottleneck) {
      kernels = {{inputs, width, 1}, {width, width, 3, stride}, {width, outputs_of(width), 1}};
    }
    Residual block;
    for (size_t i = 0; i < kernels.size(); ++i) {
      block.units.push_back(unit(
          parent, path, {fmt::format("conv{}", i + 1), fmt::format("bn{}", i + 1)}, kernels[i]));
    }
    if (stride == 1 && inputs == outputs_of(width)) return block;
    auto& shortcut = child(parent, "downsample");
    block.shortcut.push_back(
        unit(shortcut, path + "downsample.", {"0", "1"}, {inputs, outputs_of(width), 1, stride}));
    return block;
  }

 private:
  at::TensorOptions dtype() const {
    return options_.dtype == base::Precision::kFloat64 ? at::kDouble : at::kFloat;
  }

  const ResNetOptions& options_;
  bool is_here_ = true;
};

void check_resnet(const ResNetOptions& o) {
  const bool positive = !o.stages.empty() && std::ranges::min(o.stages) > 0 && o.width > 0;
  if (positive && o.classes > 1 && o.dtype != base::Precision::kBFloat16) return;
  throw Error(base::invalid_argument(fmt::format(
      "resnet: stages of {} blocks, width {}, classes {}{}: sizes are at least 1, classes at least "
      "2, and it computes in float32 or float64",
      fmt::join(o.stages, ", "), o.width, o.classes,
      o.dtype == base::Precision::kBFloat16 ? ", bf16" : "")));
}

}  // namespace

struct ResNetImpl::Parts {
  Unit stem;
  std::vector<Residual> blocks;
  at::Tensor head, head_bias;

  std::vector<const Unit*> units_of(int64_t layer) const {
    if (layer == 0) return {&stem};
    std::vector<const Unit*> found;
    for (const Unit& unit : blocks[layer - 1].units) found.push_back(&unit);
    for (const Unit& unit : blocks[layer - 1].shortcut) found.push_back(&unit);
    return found;
  }

  /// In the order of statistics(); the head has none.
  template <class See>
  void for_each_norm(layout::Range layers, const See& see) const {
    const int64_t end = std::min(layers.end, std::ssize(blocks) + 1);
    for (int64_t layer = layers.begin; layer < end; ++layer) {
      for (const Unit* unit : units_of(layer)) see(unit->norm);
    }
  }
};

ResNetOptions resnet_preset(std::string_view preset) {
  if (preset == "resnet-tiny") {
    return {.stages = {2, 2, 2}, .large_stem = false, .width = 16};
  }
  if (preset == "resnet18") return {};
  if (preset == "resnet50") return {.stages = {3, 4, 6, 3}, .bottleneck = true};
  throw Error(base::invalid_argument(
      fmt::format("resnet: '{}' is none of resnet-tiny, resnet18, resnet50", preset)));
}

ResNetImpl::ResNetImpl(const ResNetOptions& options)
    : Model("ResNet"), options_(options), parts_(std::make_unique<Parts>()) {
  check_resnet(options);
  ResNetBuilder builder(options_);
  builder.begin_layer(0);
  const int64_t kernel = options.large_stem ? 7 : 3;
  int64_t channels = options.width;
  parts_->stem =
      builder.unit(*this, "", {"conv1", "bn1"}, {3, channels, kernel, options.large_stem ? 2 : 1});
  for (size_t stage = 0; stage < options.stages.size(); ++stage) {
    const std::string name = fmt::format("layer{}", stage + 1);
    auto& list = builder.child(*this, name);
    const int64_t width = options.width << stage;
    for (int64_t i = 0; i < options.stages[stage]; ++i) {
      const std::string path = fmt::format("{}.{}.", name, i);
      builder.begin_layer(std::ssize(parts_->blocks) + 1);
      parts_->blocks.push_back(builder.block(builder.child(list, std::to_string(i)), path, channels,
                                             width, stage > 0 && i == 0 ? 2 : 1));
      channels = builder.outputs_of(width);
    }
  }
  builder.begin_layer(std::ssize(parts_->blocks) + 1);
  auto& head = builder.child(*this, "fc");
  parts_->head = builder.normal(head, "fc.weight", {options.classes, channels}, kHeadDeviation);
  parts_->head_bias = head.register_parameter("bias", builder.constant(options.classes, 0));
}

ResNetImpl::~ResNetImpl() = default;

int64_t ResNetImpl::num_layers() const { return std::ssize(parts_->blocks) + 2; }

layers::Flow ResNetImpl::layer(int64_t index, layers::Flow flow, const layers::Batch& batch) {
  if (index == 0) {
    const at::Tensor pixels = batch.inputs.to(parts_->head.scalar_type());
    const at::Tensor y = parts_->stem(pixels, is_training()).relu_();
    return {options_.large_stem ? at::max_pool2d(y, 3, 2, 1) : y};
  }
  if (index == num_layers() - 1) {
    return {at::linear(flow.at(0).mean({2, 3}), parts_->head, parts_->head_bias)};
  }
  return {parts_->blocks[static_cast<size_t>(index - 1)](flow.at(0), is_training())};
}

std::vector<at::Tensor> ResNetImpl::layer_parameters(int64_t index) const {
  if (index == num_layers() - 1) return {parts_->head, parts_->head_bias};
  std::vector<at::Tensor> read;
  for (const Unit* unit : parts_->units_of(index)) {
    for (const at::Tensor& one : {unit->convolution.weight, unit->norm.weight, unit->norm.bias}) {
      read.push_back(one);
    }
  }
  return read;
}

layers::LossSum ResNetImpl::loss(layers::Flow flow, const layers::Batch& batch) {
  if (batch.targets.is_floating_point()) {
    const at::Tensor weights = batch.targets.to(flow.at(0).scalar_type());
    return {at::cross_entropy_loss(flow.at(0), weights, {}, at::Reduction::Sum), batch.num_valid};
  }
  const at::Tensor targets = batch.targets.clamp_min(-1);
  return {at::cross_entropy_loss(flow.at(0), targets, {}, at::Reduction::Sum, -1), batch.num_valid};
}

double ResNetImpl::metric_sum(const layers::Flow& flow, const layers::Batch& batch) const {
  const at::Tensor& targets = batch.targets;
  const at::Tensor classes = targets.is_floating_point() ? targets.argmax(1) : targets;
  return static_cast<double>(flow.at(0).argmax(1).eq(classes).sum().item<int64_t>());
}

int64_t ResNetImpl::num_statistics(layout::Range layers) const {
  int64_t count = 0;
  parts_->for_each_norm(layers, [&](const BatchNorm& norm) { count += 2 * norm.channels(); });
  return count;
}

std::vector<double> ResNetImpl::statistics(layout::Range layers) const {
  std::vector<at::Tensor> all;
  parts_->for_each_norm(layers, [&](const BatchNorm& norm) {
    for (const at::Tensor& seen : {norm.seen_mean, norm.seen_var}) all.push_back(seen);
  });
  return internal::numbers_of(all);
}

void ResNetImpl::update_statistics(std::span<const double> mean) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = internal::numbers_on(parts_->head.device(), mean);
  int64_t next = 0;
  const auto move = [&](const at::Tensor& running) {
    const at::Tensor seen = all.narrow(0, next, running.numel());
    next += seen.numel();
    running.mul_(1 - kMomentum).add_(seen.to(running.options()), kMomentum);
  };
  parts_->for_each_norm({0, num_layers()}, [&](const BatchNorm& norm) {
    move(norm.running_mean);
    move(norm.running_var);
  });
}

std::shared_ptr<layers::Model> make_resnet(const ResNetOptions& options) {
  return std::make_shared<ResNetImpl>(options);
}

}  // namespace hanji::models
