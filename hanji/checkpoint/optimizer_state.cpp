#include "hanji/checkpoint/internal/optimizer_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstring>
#include <memory>
#include <unordered_map>

namespace hanji::checkpoint::internal {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using Names = std::unordered_map<const void*, std::string>;

std::string key(std::string_view what, std::string_view name) {
  return fmt::format("{}{}.{}", kOptimizerPrefix, what, name);
}

Names names_of(const torch::nn::Module& module) {
  Names names;
  for (const auto& item : module.named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  return names;
}

struct NamedParameter {
  at::Tensor tensor;
  std::string name;
  const OptimizerParamGroup* group;
};

Result<std::vector<NamedParameter>> parameters_of(const Optimizer& optimizer,
                                                  const torch::nn::Module& module) {
  const Names names = names_of(module);
  std::vector<NamedParameter> parameters;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      const auto found = names.find(tensor.unsafeGetTensorImpl());
      if (found == names.end()) {
        return base::invalid_argument(
            fmt::format("the optimizer's parameter number {} is none of the module's; save the "
                        "module that holds all of them",
                        parameters.size()));
      }
      parameters.push_back({tensor, found->second, &group});
    }
  }
  return parameters;
}

/// The state of a parameter, or null if it was never updated.
template <class State>
const State* find_state(const Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

at::Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }

template <class State>
void add_adam(const Optimizer& optimizer, const NamedParameter& parameter,
              std::vector<TensorEntry>& entries) {
  const State* state = find_state<State>(optimizer, parameter.tensor);
  entries.push_back({key("step", parameter.name), number(state ? state->step() : 0)});
  if (state == nullptr) return;
  entries.push_back({key("exp_avg", parameter.name), state->exp_avg()});
  entries.push_back({key("exp_avg_sq", parameter.name), state->exp_avg_sq()});
  if (!state->max_exp_avg_sq().defined()) return;
  entries.push_back({key("max_exp_avg_sq", parameter.name), state->max_exp_avg_sq()});
}

void add_sgd(const Optimizer& optimizer, const NamedParameter& parameter,
             std::vector<TensorEntry>& entries) {
  const auto* state = find_state<torch::optim::SGDParamState>(optimizer, parameter.tensor);
  if (state == nullptr || !state->momentum_buffer().defined()) return;
  entries.push_back({key("momentum_buffer", parameter.name), state->momentum_buffer()});
}

/// The number of updates of a parameter as the file tells it; 0 where it tells none.
int64_t saved_step(const SafetensorsFile& file, const std::string& name) {
  const NamedTensor* tensor = file.find(key("step", name));
  int64_t step = 0;
  if (tensor == nullptr || tensor->dtype != DType::kInt64 || tensor->bytes.size() != sizeof(step)) {
    return 0;
  }
  std::memcpy(&step, tensor->bytes.data(), sizeof(step));
  return step;
}

/// What one parameter's state becomes: `finish` is called when the tensors are filled.
struct Piece {
  void* parameter;
  std::unique_ptr<torch::optim::OptimizerParamState> state;
  std::function<void()> finish = [] {};
};

template <class State, class Options>
Piece prepare_adam(const NamedParameter& parameter, const SafetensorsFile& file,
                   std::vector<TensorEntry>& entries) {
  Piece piece{parameter.tensor.unsafeGetTensorImpl(), nullptr};
  const at::Tensor step = number(0);
  entries.push_back({key("step", parameter.name), step});
  if (saved_step(file, parameter.name) <= 0) return piece;
  auto state = std::make_unique<State>();
  const auto add = [&](const char* what) {
    entries.push_back({key(what, parameter.name), at::zeros_like(parameter.tensor).detach()});
    return entries.back().tensor;
  };
  state->exp_avg(add("exp_avg"));
  state->exp_avg_sq(add("exp_avg_sq"));
  if (static_cast<const Options&>(parameter.group->options()).amsgrad()) {
    state->max_exp_avg_sq(add("max_exp_avg_sq"));
  }
  piece.finish = [state = state.get(), step] { state->step(step.item<int64_t>()); };
  piece.state = std::move(state);
  return piece;
}

Piece prepare_sgd(const NamedParameter& parameter, const SafetensorsFile& file,
                  std::vector<TensorEntry>& entries) {
  Piece piece{parameter.tensor.unsafeGetTensorImpl(), nullptr};
  const auto& options = static_cast<const torch::optim::SGDOptions&>(parameter.group->options());
  const std::string name = key("momentum_buffer", parameter.name);
  if (options.momentum() == 0 || file.find(name) == nullptr) return piece;
  auto state = std::make_unique<torch::optim::SGDParamState>();
  entries.push_back({name, at::zeros_like(parameter.tensor).detach()});
  state->momentum_buffer(entries.back().tensor);
  piece.state = std::move(state);
  return piece;
}

void install(Optimizer& optimizer, std::vector<Piece>& pieces) {
  for (Piece& piece : pieces) {
    piece.finish();
    optimizer.state().erase(piece.parameter);
    if (piece.state) optimizer.state()[piece.parameter] = std::move(piece.state);
  }
}

}  // namespace

Result<std::string> kind_of(const Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) return std::string("AdamW");
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) return std::string("Adam");
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) return std::string("SGD");
  return base::unsupported("the optimizer is none of AdamW, Adam and SGD; save its state yourself");
}

Result<std::vector<TensorEntry>> state_of(const Optimizer& optimizer,
                                          const torch::nn::Module& module) {
  HANJI_ASSIGN_OR_RETURN(const std::string kind, kind_of(optimizer));
  HANJI_ASSIGN_OR_RETURN(const auto parameters, parameters_of(optimizer, module));
  std::vector<TensorEntry> entries;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    entries.push_back({key("lr", std::to_string(entries.size())),
                       at::scalar_tensor(group.options().get_lr(), at::kDouble)});
  }
  for (const NamedParameter& parameter : parameters) {
    if (kind == "AdamW") add_adam<torch::optim::AdamWParamState>(optimizer, parameter, entries);
    if (kind == "Adam") add_adam<torch::optim::AdamParamState>(optimizer, parameter, entries);
    if (kind == "SGD") add_sgd(optimizer, parameter, entries);
  }
  return entries;
}

Result<PendingState> prepare_state(Optimizer& optimizer, const torch::nn::Module& module,
                                   const SafetensorsFile& file) {
  using namespace torch::optim;
  HANJI_ASSIGN_OR_RETURN(const std::string kind, kind_of(optimizer));
  HANJI_ASSIGN_OR_RETURN(const auto parameters, parameters_of(optimizer, module));
  PendingState pending;
  std::vector<at::Tensor> rates;
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    rates.push_back(at::zeros({}, at::kDouble));
    pending.entries.push_back({key("lr", std::to_string(i)), rates.back()});
  }
  auto pieces = std::make_shared<std::vector<Piece>>();
  for (const NamedParameter& parameter : parameters) {
    auto& entries = pending.entries;
    pieces->push_back(
        kind == "AdamW"  ? prepare_adam<AdamWParamState, AdamWOptions>(parameter, file, entries)
        : kind == "Adam" ? prepare_adam<AdamParamState, AdamOptions>(parameter, file, entries)
                         : prepare_sgd(parameter, file, entries));
  }
  pending.install = [&optimizer, pieces, rates] {
    install(optimizer, *pieces);
    for (size_t i = 0; i < rates.size(); ++i) {
      optimizer.param_groups()[i].options().set_lr(rates[i].item<double>());
    }
  };
  return pending;
}

}  // namespace hanji::checkpoint::internal
