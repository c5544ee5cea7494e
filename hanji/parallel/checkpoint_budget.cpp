#include "hanji/parallel/checkpoint_budget.h"

#include "hanji/base/status.h"

namespace hanji::parallel {
namespace {

bool is_within(const std::string& module, const std::string& block) {
  return module == block || module.rfind(block + ".", 0) == 0;
}

layout::BlockCost cost_of_block(const lens::Profile& profile, const std::string& block,
                                int64_t input_bytes) {
  layout::BlockCost cost{0, input_bytes, 0};
  bool is_known = false;
  for (const lens::OperationSum& sum : profile.sums) {
    if (sum.backward || !is_within(sum.module, block)) continue;
    is_known = true;
    cost.kept_bytes += sum.kept_bytes;
    cost.flops += sum.flops;
  }
  if (is_known) return cost;
  throw Error(base::not_found("checkpoints_within: the profile has no operation of the module " +
                              block +
                              "; name submodules with parameters, as named_modules() does"));
}

}  // namespace

Checkpoints checkpoints_within(int64_t budget_bytes, const lens::Profile& profile,
                               const std::vector<std::string>& blocks, int64_t input_bytes) {
  std::vector<layout::BlockCost> costs;
  for (const std::string& block : blocks) {
    costs.push_back(cost_of_block(profile, block, input_bytes));
  }
  return {layout::choose_recomputed(costs, budget_bytes).or_throw()};
}

}  // namespace hanji::parallel
