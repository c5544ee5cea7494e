#include "hanji/parallel/flat_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/compute/adamw.h"
#include "hanji/layout/shard.h"

namespace hanji::parallel {
namespace {

using TensorLists = std::vector<std::vector<at::Tensor>>;

void check_part(const FlatPart& part) {
  int64_t end = 0;
  for (const FlatPiece& piece : part.pieces) end = std::max(end, piece.range.end);
  if (part.parameters.numel() == part.gradients.numel() && end <= part.parameters.numel() &&
      part.parameters.scalar_type() == part.gradients.scalar_type()) {
    return;
  }
  throw Error(base::invalid_argument(
      "flat optimizer: parameters (" + std::to_string(part.parameters.numel()) + " of " +
      c10::toString(part.parameters.scalar_type()) + "), gradients (" +
      std::to_string(part.gradients.numel()) + " of " +
      c10::toString(part.gradients.scalar_type()) + ") and pieces that end at element " +
      std::to_string(end) + " do not fit together"));
}

// libtorch's kernels round what is behind the last whole vector in another order: where that is depends on how much of
// a parameter is here. Behind a parameter there is room up to a multiple of 64 elements, which nobody reads.
constexpr int64_t kVector = 16;

/// The pieces of one learning rate and decay, cut out of each buffer, up to whole vectors.
struct Cut {
  ParameterGroup group;
  TensorLists of;              ///< By buffer.
  std::vector<size_t> pieces;  ///< Pieces of the part.
};

std::vector<Cut> cut_by_group(const std::vector<FlatPiece>& pieces,
                              const std::vector<at::Tensor>& buffers) {
  std::map<std::pair<double, double>, Cut> cuts;
  for (size_t index = 0; index < pieces.size(); ++index) {
    const FlatPiece& piece = pieces[index];
    if (piece.range.empty()) continue;
    Cut& cut = cuts[{piece.group.learning_rate_factor, piece.group.weight_decay}];
    cut.group = piece.group;
    cut.of.resize(buffers.size());
    cut.pieces.push_back(index);
    const int64_t end = layout::round_up(piece.range.end, kVector);
    for (size_t i = 0; i < buffers.size(); ++i) {
      cut.of[i].push_back(buffers[i].slice(0, piece.range.begin, end));
    }
  }
  std::vector<Cut> found;
  for (auto& [key, cut] : cuts) found.push_back(std::move(cut));
  return found;
}

/// The kernels divide by a float32; gradients of float64 are divided here, in their own type.
std::optional<at::Tensor> divisor_for(const at::Tensor& gradients, double divisor) {
  if (gradients.scalar_type() == at::kDouble) {
    if (divisor != 1) gradients.div_(divisor);
    return std::nullopt;
  }
  return at::full({}, divisor, gradients.options().dtype(at::kFloat));
}

class AdamW : public FlatOptimizer {
 public:
  AdamW(FlatPart part, const AdamWOptions& options)
      : part_(std::move(part)),
        options_(options),
        first_(zero_state(part_)),
        second_(zero_state(part_)),
        step_(at::zeros({}, part_.parameters.options().dtype(at::kFloat))),
        cuts_(cut_by_group(part_.pieces, {part_.parameters, part_.gradients, first_, second_})) {}

  void step(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    ++num_updates_;
    rounds() ? step_by_own_kernel(learning_rate, gradient_divisor)
             : step_by_libtorch(learning_rate, gradient_divisor);
  }
  std::vector<NamedParameter> state() const override {
    return {{"first_moment", first_}, {"second_moment", second_}};
  }
  bool rounds() const override {
    return part_.parameters.is_cpu() && part_.parameters.scalar_type() == at::kFloat;
  }
  void round_into(std::vector<at::Tensor> rounded) override { rounded_ = std::move(rounded); }

 private:
  /// Which has the bits of libtorch's, and leaves the gradients alone.
  void step_by_own_kernel(double learning_rate, double gradient_divisor) {
    const std::vector<at::Tensor> rounded = std::exchange(rounded_, {});
    for (const Cut& cut : cuts_) {
      const compute::AdamWStep step{.learning_rate = learning_rate * cut.group.learning_rate_factor,
                                    .beta1 = options_.beta1,
                                    .beta2 = options_.beta2,
                                    .epsilon = options_.epsilon,
                                    .weight_decay = cut.group.weight_decay,
                                    .gradient_divisor = gradient_divisor,
                                    .update = num_updates_};
      for (size_t i = 0; i < cut.pieces.size(); ++i) {
        const auto& of = cut.of;
        at::Tensor copy = rounded.empty() ? at::Tensor() : rounded.at(cut.pieces[i]);
        if (copy.defined()) copy = copy.slice(0, 0, of[0][i].numel());
        compute::adamw_update({of[0][i], of[1][i], of[2][i], of[3][i], copy}, step);
      }
    }
  }

  void step_by_libtorch(double learning_rate, double gradient_divisor) {
    step_.fill_(num_updates_);
    const auto divisor = divisor_for(part_.gradients, gradient_divisor);
    for (Cut& cut : cuts_) {
      const std::vector<at::Tensor> steps(cut.of[0].size(), step_);
      at::_fused_adamw_(cut.of[0], cut.of[1], cut.of[2], cut.of[3], /*max_exp_avg_sqs=*/{}, steps,
                        learning_rate * cut.group.learning_rate_factor, options_.beta1,
                        options_.beta2, cut.group.weight_decay, options_.epsilon,
                        /*amsgrad=*/false, /*maximize=*/false, divisor);
    }
  }

  FlatPart part_;
  AdamWOptions options_;
  at::Tensor first_, second_, step_;
  std::vector<at::Tensor> rounded_;  ///< Weights of the next step.
  std::vector<Cut> cuts_;
};

class Sgd : public FlatOptimizer {
 public:
  Sgd(FlatPart part, const SgdOptions& options) : part_(std::move(part)), options_(options) {
    std::vector<at::Tensor> buffers{part_.parameters, part_.gradients};
    if (options.momentum != 0) {
      momentum_ = zero_state(part_);
      buffers.push_back(momentum_);
    }
    cuts_ = cut_by_group(part_.pieces, buffers);
  }

  void step(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    const auto divisor = divisor_for(part_.gradients, gradient_divisor);
    for (Cut& cut : cuts_) {
      const at::TensorList momentum =
          options_.momentum != 0 ? at::TensorList(cut.of[2]) : at::TensorList();
      at::_fused_sgd_(cut.of[0], cut.of[1], momentum, cut.group.weight_decay, options_.momentum,
                      learning_rate * cut.group.learning_rate_factor, options_.dampening,
                      options_.nesterov, /*maximize=*/false,
                      /*is_first_step=*/num_updates_ == 0, divisor);
    }
    ++num_updates_;
  }
  std::vector<NamedParameter> state() const override {
    if (!momentum_.defined()) return {};
    return {{"momentum", momentum_}};
  }

 private:
  FlatPart part_;
  SgdOptions options_;
  at::Tensor momentum_;
  std::vector<Cut> cuts_;
};

class ByParts : public FlatOptimizer {
 public:
  explicit ByParts(std::vector<std::unique_ptr<FlatOptimizer>> parts) : parts_(std::move(parts)) {}

  void step(double learning_rate, double gradient_divisor) override {
    for (const auto& part : parts_) {
      part->set_num_updates(num_updates_);
      part->step(learning_rate, gradient_divisor);
    }
    ++num_updates_;
  }
  std::vector<NamedParameter> state() const override {
    std::vector<NamedParameter> all;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const std::string prefix = parts_.size() == 1 ? "" : "part " + std::to_string(i) + " ";
      for (auto& [name, tensor] : parts_[i]->state()) all.push_back({prefix + name, tensor});
    }
    return all;
  }
  bool is_element_wise() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->is_element_wise(); });
  }

 private:
  std::vector<std::unique_ptr<FlatOptimizer>> parts_;
};

}  // namespace

int64_t FlatOptimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const NamedParameter& entry : state()) bytes += static_cast<int64_t>(entry.tensor.nbytes());
  return bytes;
}

std::unique_ptr<FlatOptimizer> optimizer_of_parts(const MakeOptimizer& make,
                                                  std::vector<FlatPart> parts) {
  std::vector<std::unique_ptr<FlatOptimizer>> optimizers;
  for (FlatPart& part : parts) optimizers.push_back(make(std::move(part), {}));
  return std::make_unique<ByParts>(std::move(optimizers));
}

std::unique_ptr<FlatOptimizer> flat_adamw(FlatPart part, const AdamWOptions& options) {
  check_part(part);
  check_in_memory(part, "flat_adamw");
  return std::make_unique<AdamW>(std::move(part), options);
}

std::unique_ptr<FlatOptimizer> flat_sgd(FlatPart part, const SgdOptions& options) {
  check_part(part);
  check_in_memory(part, "flat_sgd");
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    throw Error(base::invalid_argument(
        "flat_sgd: Nesterov's step needs momentum above 0 and no dampening"));
  }
  return std::make_unique<Sgd>(std::move(part), options);
}

}  // namespace hanji::parallel
