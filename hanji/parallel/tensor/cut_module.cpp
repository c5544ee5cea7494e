#include "hanji/parallel/tensor/cut_module.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/lens/observer.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/placed_tensors.h"
#include "hanji/parallel/tensor/embedding.h"
#include "hanji/parallel/tensor/internal/cut_weights.h"
#include "hanji/parallel/tensor/internal/known_tensors.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/regions.h"

namespace hanji::parallel::tensor {

/// An operation on rows and a weight, by the positions of its arguments.
struct WeightProduct {
  std::string_view name;
  int x, weight;
  int bias;  ///< -1: it takes none.
  TensorRole taken;
};

namespace {

using lens::Operation;
using Note = KnownTensors::Note;

constexpr std::array kWeightProducts = {
    WeightProduct{"aten::linear", 0, 1, 2, TensorRole::kWeight},
    WeightProduct{"aten::addmm", 1, 2, 0, TensorRole::kTransposed},
    WeightProduct{"aten::matmul", 0, 1, -1, TensorRole::kTransposed},
    WeightProduct{"aten::mm", 0, 1, -1, TensorRole::kTransposed},
    WeightProduct{"aten::embedding", 1, 0, -1, TensorRole::kWeight}};

/// Each element of the result comes from the same element of the arguments; each also in place.
bool is_elementwise(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "abs",      "add",        "alias",       "celu",      "clamp",    "clamp_max",  "clamp_min",
      "clone",    "contiguous", "cos",         "detach",    "div",      "elu",        "erf",
      "exp",      "gelu",       "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid",
      "maximum",  "minimum",    "mish",        "mul",       "neg",      "pow",        "relu",
      "relu6",    "rsqrt",      "rsub",        "selu",      "sigmoid",  "silu",       "sin",
      "softplus", "sqrt",       "square",      "sub",       "tanh",     "to",         "_to_copy",
      "type_as"};
  name.remove_prefix(std::min(name.size(), std::string_view("aten::").size()));
  if (name.ends_with('_')) name.remove_suffix(1);
  return kNames.contains(name);
}

/// Other shapes of the same rows, as long as the last dimension stays.
bool is_reshape(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames = {"aten::view",         "aten::reshape",
                                                      "aten::flatten",      "aten::unflatten",
                                                      "aten::_unsafe_view", "aten::unsqueeze"};
  return std::ranges::find(kNames, name) != kNames.end();
}

bool drops_nothing(const Operation& operation) {
  return operation.name() == "aten::dropout" && !operation.arguments()[2].toBool();
}

/// A tensor among arguments, or undefined.
at::Tensor tensor_at(const Operation& operation, int position) {
  if (position < 0 || !operation.arguments()[position].isTensor()) return {};
  return operation.arguments()[position].toTensor();
}

bool is_one(const c10::IValue& factor) {
  return factor.isInt() ? factor.toInt() == 1 : factor.isDouble() && factor.toDouble() == 1;
}

/// addmm may scale both terms.
bool scales(const Operation& operation) {
  const auto arguments = operation.arguments();
  return operation.name() == "aten::addmm" && !(is_one(arguments[3]) && is_one(arguments[4]));
}

bool is_differentiated(const Operation& operation) {
  bool any = false;
  operation.for_each_input([&](const at::Tensor& tensor) { any |= tensor.requires_grad(); });
  return any && at::GradMode::is_enabled();
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(base::unsupported("cut_module: " + what));
}

}  // namespace

/// Makes the products of cut weights, and follows what comes from columns.
class CutModule::Observer : public lens::Observer {
 public:
  Observer(torch::nn::Module& module, const Axis& axis, const ModuleCuts& cuts)
      : module_(module), axis_(axis), weights_(cut_weights(module, axis, cuts)) {
    cut_ = {placements_of(weights_), axis.rank(), axis.degree()};
    if (axis.degree() == 1) return;
    for (size_t i = 0; i < weights_.size(); ++i) {
      known_.add(weights_[i].weight, {TensorRole::kWeight, i});
      if (weights_[i].cuts_bias()) known_.add(weights_[i].bias, {TensorRole::kBias, i});
    }
    scope_.emplace(*this);
  }

  const layout::Cut& cut() const { return cut_; }

  double clip_grad_norm(double max_norm) const {
    std::vector<at::Tensor> parameters;
    for (const auto& [name, tensor] : distinct_parameters(module_)) parameters.push_back(tensor);
    if (axis_.degree() == 1) return parallel::clip_grad_norm(parameters, max_norm);
    const lens::Pause pause;
    at::Tensor squares = at::zeros({2}, at::kDouble);
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.grad().defined()) continue;
      squares[is_cut(parameter) ? 0 : 1] += sum_of_blocks(norm_blocks(parameter.grad()));
    }
    squares[0] = axis_.sum(squares.slice(0, 0, 1))[0];
    const double norm = std::sqrt(squares.sum().item<double>());
    scale_to_norm(parameters, norm, max_norm);
    return norm;
  }

  void before(const Operation& operation) override {
    result_.reset();
    features_.reset();
    product_ = nullptr;
    const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
    if (in_backward && !in_recomputation()) return;
    std::optional<Note> features, parameter;
    operation.for_each_input([&](const at::Tensor& tensor) {
      const Note* note = known_.find(tensor);
      if (note != nullptr) (note->role == TensorRole::kFeatures ? features : parameter) = *note;
    });
    if (!features && !parameter) return;
    features_ = features;
    name_ = operation.name();
    if (find_product(operation)) return;
    if (features) return check_between(operation, *features);
    check_reading(operation, *parameter);
  }

  std::optional<at::Tensor> replace(const Operation& operation) override {
    if (product_ == nullptr) return std::nullopt;
    const CutWeight& one = weights_[weight_];
    const at::Tensor x = tensor_at(operation, product_->x);
    if (one.is_table) {
      return sum(embedding(x, {{one.weight, {}}}, axis_, one.extents), axis_).value();
    }
    const at::Tensor y = output_of(one, x, tensor_at(operation, product_->bias));
    // What a function of autograd returns as a view cannot be changed in place, as by a bias.
    return y.is_view() ? at::_unsafe_view(y, y.sizes()) : y;
  }

  /// Sizes that are fixed in forward() are those of the whole.
  void failed(const std::exception& why) override {
    const auto* by_torch = dynamic_cast<const c10::Error*>(&why);
    if (by_torch == nullptr || !features_) return;
    const CutWeight& one = weights_[features_->weight];
    const std::string reason = by_torch->what_without_backtrace();
    const auto all = std::accumulate(one.extents.begin(), one.extents.end(), int64_t{0});
    refuse(fmt::format(
        "{} cannot take the output of {}, of whose {} features this rank has {}: {}; "
        "forward() fixes a size of the whole output, as a number of heads: take it "
        "from size(-1), or cut {} as gathered",
        name_, one.module, all, own_columns(one), reason.substr(0, reason.find('\n')), one.module));
  }

  void after(const Operation& operation) override {
    if (!result_) return;
    operation.for_each_output([&](const at::Tensor& tensor) {
      if (result_->role == TensorRole::kFeatures && tensor.size(-1) != columns_) {
        refuse(
            fmt::format("{} changes the last dimension of the output of {}, which is cut by it; "
                        "reshape after the row, or cut {} as gathered",
                        operation.name(), name_of(*result_), name_of(*result_)));
      }
      known_.add(tensor, *result_);
    });
  }

 private:
  const std::string& name_of(const Note& note) const { return weights_[note.weight].module; }
  bool is_cut(const at::Tensor& parameter) const {
    return std::ranges::any_of(weights_, [&](const CutWeight& one) {
      return one.weight.is_same(parameter) || (one.cuts_bias() && one.bias.is_same(parameter));
    });
  }

  /// Whether this is a product of a cut weight as a module makes it.
  bool find_product(const Operation& operation) {
    const auto* found = std::ranges::find(kWeightProducts, operation.name(), &WeightProduct::name);
    if (found == kWeightProducts.end()) return false;
    const at::Tensor weight = tensor_at(operation, found->weight);
    const Note* note = weight.defined() ? known_.find(weight) : nullptr;
    if (note == nullptr || note->role != found->taken || scales(operation)) return false;
    if (weights_[note->weight].is_table != (operation.name() == "aten::embedding")) return false;
    product_ = found;
    weight_ = note->weight;
    check_part(weights_[weight_]);
    check_ends(operation, *note);
    return true;
  }

  /// torch::load() and set_data() may bring a whole parameter back.
  void check_part(const CutWeight& one) const {
    const int64_t part = own_columns(one);
    const auto check = [&](const char* name, const at::Tensor& parameter, int64_t dim) {
      if (parameter.dim() > dim && parameter.size(dim) == part) return;
      refuse(
          fmt::format("the memory of {}.{} was replaced, by torch::load(), set_data() or the like: "
                      "it has [{}], and this rank's part {} along dimension {}; load before the "
                      "module is cut",
                      one.module, name, fmt::join(parameter.sizes(), ", "), part, dim));
    };
    check("weight", one.weight, one.dim());
    if (one.cuts_bias()) check("bias", one.bias, 0);
  }

  void check_ends(const Operation& operation, const Note& weight) {
    const CutWeight& one = weights_[weight.weight];
    const Note* x = known_.find(tensor_at(operation, product_->x));
    const at::Tensor bias = tensor_at(operation, product_->bias);
    const Note* b = bias.defined() ? known_.find(bias) : nullptr;
    const bool takes_part = one.cut == ModuleCut::kRow && !one.is_table;
    if (takes_part && x == nullptr) {
      refuse(
          fmt::format("{} is a row, but its input is whole; cut the Linear before it as a "
                      "column, or leave both whole",
                      one.module));
    }
    if (!takes_part && x != nullptr) {
      refuse(
          fmt::format("{} needs a whole input, but {} has cut it; cut {} as a row, or {} as "
                      "gathered",
                      one.module, name_of(*x), one.module, name_of(*x)));
    }
    const bool own = b != nullptr && b->role == TensorRole::kBias && b->weight == weight.weight;
    const bool fits = one.cut == ModuleCut::kColumn ? own : b == nullptr;
    if (bias.defined() && !fits) {
      refuse(fmt::format("{} adds to the output of {} what is not its bias; add it afterwards",
                         operation.name(), one.module));
    }
    if (one.cut == ModuleCut::kColumn) keep_cut(weight, own_columns(one));
  }

  int64_t own_columns(const CutWeight& one) const { return one.extents[axis_.rank()]; }

  /// The results of this operation are cut, too.
  void keep_cut(const Note& source, int64_t columns) {
    result_ = Note{TensorRole::kFeatures, source.weight};
    columns_ = columns;
  }

  at::Tensor output_of(const CutWeight& one, const at::Tensor& x, const at::Tensor& bias) const {
    const auto with_bias = [&]<class Placement>(const Typed<Placement>& y) {
      if (!bias.defined()) return y.value();
      return (y + RowParameter<Placement>{{bias, {}}}).value();
    };
    if (one.cut == ModuleCut::kRow) {
      const Parameter<Sharded<1>> weight{{one.weight, {}}};
      return with_bias(sum(row_linear(Typed<Features>(x), weight), axis_));
    }
    const Parameter<Sharded<0>> weight{{one.weight, {}}};
    const auto columns = column_linear(enter(Typed<Replicated>(x), axis_), weight);
    if (one.cut == ModuleCut::kColumn) return with_bias(columns);
    return with_bias(whole(columns, axis_, one.extents));
  }

  void check_between(const Operation& operation, const Note& features) {
    const std::string& name = operation.name();
    if (!is_elementwise(name) && !is_reshape(name) && !drops_nothing(operation)) {
      refuse(
          fmt::format("{} needs all features of the output of {}, of which a rank has a part; "
                      "move it behind a row, or cut {} as gathered",
                      name, name_of(features), name_of(features)));
    }
    operation.for_each_input([&](const at::Tensor& tensor) {
      const Note* note = known_.find(tensor);
      const bool is_cut = note != nullptr &&
                          (note->role == TensorRole::kFeatures || note->role == TensorRole::kBias);
      if (is_cut || (note == nullptr && tensor.numel() == 1)) return;
      refuse(
          fmt::format("{} joins the output of {}, of which a rank has a part, with a whole "
                      "tensor; move it behind a row, or cut {} as gathered",
                      name, name_of(features), name_of(features)));
    });
    keep_cut(features, own_columns(weights_[features.weight]));
  }

  /// Optimizers and initial values read parts; what is differentiated would read a whole.
  void check_reading(const Operation& operation, const Note& parameter) {
    if (operation.is_view()) {
      const bool transposes =
          operation.name() == "aten::t" && parameter.role == TensorRole::kWeight;
      result_ = Note{transposes ? TensorRole::kTransposed : TensorRole::kPart, parameter.weight};
      return;
    }
    const bool is_product = std::ranges::find(kWeightProducts, operation.name(),
                                              &WeightProduct::name) != kWeightProducts.end();
    if (replaces_memory(operation.name())) return;
    if (!is_differentiated(operation) && !is_product) return;
    refuse(
        fmt::format("{} reads a parameter of {}, of which a rank has a part; a cut parameter can "
                    "only be used by its module's forward()",
                    operation.name(), name_of(parameter)));
  }

  const torch::nn::Module& module_;
  const Axis axis_;
  const std::vector<CutWeight> weights_;
  layout::Cut cut_;
  KnownTensors known_;
  // Of the operation on its way:
  const WeightProduct* product_ = nullptr;  ///< Null: it is made as it is.
  size_t weight_ = 0;
  std::optional<Note> features_;  ///< Of its arguments that are cut.
  std::string name_;              ///< Its own, if it has such arguments.
  std::optional<Note> result_;    ///< What its results are.
  int64_t columns_ = 0;           ///< Of a result that is cut.
  std::optional<lens::Scope> scope_;
};

CutModule::CutModule(torch::nn::Module& module, const comm::Group& group, const ModuleCuts& cuts)
    : observer_(std::make_unique<Observer>(module, Axis(group), cuts)) {}

CutModule::~CutModule() = default;

const layout::Cut& CutModule::cut() const { return observer_->cut(); }

double CutModule::clip_grad_norm(double max_norm) const {
  return observer_->clip_grad_norm(max_norm);
}

}  // namespace hanji::parallel::tensor
