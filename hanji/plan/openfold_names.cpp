#include "hanji/plan/openfold_names.h"

#include <array>
#include <string_view>
#include <utility>

namespace hanji::plan {
namespace {

constexpr std::array<std::string_view, 2> kWrappers = {"module.", "model."};
/// Each in every block; a name holds at most one that applies twice.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kModules = {
    {{".core.msa_transition.", ".msa_transition."},
     {".core.outer_product_mean.", ".outer_product_mean."},
     {".core.", ".pair_stack."},
     {".pair_core.", ".pair_stack."},
     {".msa_att_col.layer_norm_m.", ".msa_att_col._msa_att.layer_norm_m."},
     {".msa_att_col.mha.", ".msa_att_col._msa_att.mha."}}};

bool replace(std::string& name, std::string_view part, std::string_view by) {
  const size_t place = name.find(part);
  if (place == name.npos) return false;
  name.replace(place, part.size(), by);
  return true;
}

}  // namespace

std::vector<NamedRows> renamed_of_openfold(std::string name) {
  for (const std::string_view wrapper : kWrappers) {
    if (name.starts_with(wrapper)) name.erase(0, wrapper.size());
  }
  if (!name.starts_with("evoformer.blocks.")) return {{std::move(name)}};
  for (const auto& [theirs, ours] : kModules) {
    if (replace(name, theirs, ours)) break;
  }
  std::string second = name;
  if (!replace(name, ".linear_ab_", ".linear_a_")) return {{std::move(name)}};
  replace(second, ".linear_ab_", ".linear_b_");
  return {{std::move(name), 0, 2}, {std::move(second), 1, 2}};
}

}  // namespace hanji::plan
