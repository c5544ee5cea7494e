#include "hanji/parallel/tensor/internal/cut_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "hanji/base/status.h"

namespace hanji::parallel::tensor {
namespace {

using torch::nn::EmbeddingImpl;
using torch::nn::LinearImpl;

/// Finds what is to be cut, and notes what cannot be.
class CutFinder {
 public:
  CutFinder(const torch::nn::Module& module, const Axis& axis) : axis_(axis) {
    add_owner(module, "the module itself");
    for (const auto& item : module.named_modules("", /*include_self=*/false)) {
      modules_[item.key()] = item.value();
      add_owner(*item.value(), item.key());
    }
  }

  void find(const std::string& pattern, ModuleCut cut) {
    const layout::PlacementTable table{{pattern, {}}};
    bool any = false;
    for (const auto& [name, module] : modules_) {
      if (!layout::placement_of(table, name).ok()) continue;
      any = true;
      add(name, *module, cut);
    }
    if (!any) unknown(pattern);
  }

  std::vector<CutWeight> found() {
    if (mistakes_.empty()) return std::move(weights_);
    throw Error(base::invalid_argument(fmt::format("{}", fmt::join(mistakes_, "\n"))));
  }

 private:
  void add(const std::string& name, const torch::nn::Module& module, ModuleCut cut) {
    CutWeight one{.module = name, .cut = cut};
    if (const auto* linear = module.as<LinearImpl>()) {
      one.weight = linear->weight;
      one.bias = linear->bias;
    } else if (const auto* table = module.as<EmbeddingImpl>()) {
      one.weight = table->weight;
      one.is_table = true;
      if (cut != ModuleCut::kRow) return refuse(name, "is an Embedding; cut it as a row");
      if (has_options(table->options)) {
        return refuse(name,
                      "has options that need the whole table; leave out padding_idx, max_norm, "
                      "scale_grad_by_freq and sparse, or the module from the cuts");
      }
    } else {
      return refuse(
          name, fmt::format("is a {}; only a Linear or an Embedding can be cut", module.name()));
    }
    check_and_keep(std::move(one));
  }

  static bool has_options(const torch::nn::EmbeddingOptions& options) {
    return options.padding_idx() || options.max_norm() || options.scale_grad_by_freq() ||
           options.sparse();
  }

  void add_owner(const torch::nn::Module& module, const std::string& name) {
    for (const at::Tensor& own : module.parameters(/*recurse=*/false)) {
      owners_[own.unsafeGetTensorImpl()].push_back(name);
    }
  }

  void refuse(const std::string& name, const std::string& why) {
    mistakes_.push_back(fmt::format("cut_module: {} {}", name, why));
  }

  void unknown(const std::string& name) {
    std::vector<std::string> names;
    for (const auto& [key, module] : modules_) {
      if (module->as<LinearImpl>() || module->as<EmbeddingImpl>()) names.push_back(key);
    }
    refuse(name, fmt::format("is no module; those that can be cut: {}", fmt::join(names, ", ")));
  }

  void check_and_keep(CutWeight one) {
    if (std::ranges::count(weights_, one.module, &CutWeight::module) > 0) {
      return refuse(one.module, "is cut twice; leave one of its cuts out");
    }
    const auto& owners = owners_.at(one.weight.unsafeGetTensorImpl());
    if (owners.size() > 1) {
      return refuse(one.module, fmt::format("shares its weight with other modules ({}); leave it "
                                            "whole, or give each module a weight of its own",
                                            fmt::join(owners, ", ")));
    }
    const int64_t size = one.weight.size(one.dim());
    const auto parts = layout::parts_of({.dim = one.dim()}, size, axis_.rank(), axis_.degree());
    if (!parts.ok()) return refuse(one.module, parts.status().message());
    one.extents = axis_.extents_of(size);
    weights_.push_back(std::move(one));
  }

  const Axis& axis_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
  std::unordered_map<const c10::TensorImpl*, std::vector<std::string>> owners_;
  std::vector<CutWeight> weights_;
  std::vector<std::string> mistakes_;
};

/// In memory of its own, so that the whole's can go.
void shrink(at::Tensor parameter, const Axis& axis, const CutWeight& one, int64_t dim) {
  parameter.mutable_grad().reset();
  parameter.set_data(axis.own_part(parameter.detach(), dim, one.extents).clone());
}

}  // namespace

std::vector<CutWeight> cut_weights(torch::nn::Module& module, const Axis& axis,
                                   const ModuleCuts& cuts) {
  CutFinder finder(module, axis);
  for (const auto& [name, cut] : cuts) finder.find(name, cut);
  std::vector<CutWeight> weights = finder.found();
  if (axis.degree() == 1) return weights;
  const at::NoGradGuard no_grad;
  for (const CutWeight& one : weights) {
    shrink(one.weight, axis, one, one.dim());
    if (one.cuts_bias()) shrink(one.bias, axis, one, 0);
  }
  return weights;
}

layout::PlacementTable placements_of(const std::vector<CutWeight>& weights) {
  layout::PlacementTable table;
  for (const CutWeight& one : weights) {
    const int64_t size = std::accumulate(one.extents.begin(), one.extents.end(), int64_t{0});
    table.push_back({one.module + ".weight", {one.dim(), {size}}});
    if (one.cuts_bias()) table.push_back({one.module + ".bias", {0, {size}}});
  }
  table.push_back({"*", {}});
  return table;
}

}  // namespace hanji::parallel::tensor
