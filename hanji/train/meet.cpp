#include "hanji/train/meet.h"

#include "hanji/comm/gloo/group.h"
#include "hanji/cost/select.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/world/connect.h"

namespace hanji::train {
namespace {

/// The plan's rates are the same on every rank.
void follow_plan(const std::string& plan_json, comm::GroupOptions& options) {
  const plan::Plan plan = plan::plan_from_json(plan_json).or_throw();
  options.deadline =
      std::chrono::nanoseconds(static_cast<int64_t>(plan.config.comm.deadline * 1e9));
  options.bits = plan.config.train.bits == plan::Bits::kFast ? comm::Bits::kFast : comm::Bits::kRun;
  options.chooser =
      std::make_shared<cost::Chooser>(plan.rates, plan::named_algorithms(plan.config.comm));
}

}  // namespace

world::World meet() { return world::connect({.configure = follow_plan}); }

comm::Group training_group(const world::World& world, const plan::Plan& plan) {
  if (plan.config.comm.engine == plan::Engine::kShm) return world.group();
  comm::GroupOptions options = world.group().options();
  options.name = "gloo";
  return comm::gloo::make_group(world.group(), std::move(options));
}

}  // namespace hanji::train
