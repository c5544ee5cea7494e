#include "hanji/train/meet.h"

#include <fmt/format.h>

#include <utility>

#include "hanji/comm/gloo/group.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/cost/select.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/world/connect.h"

namespace hanji::train {

// The plan's rates are the same on every rank.
comm::GroupOptions follow_plan(const plan::Plan& plan, comm::GroupOptions options) {
  options.deadline =
      std::chrono::nanoseconds(static_cast<int64_t>(plan.config.comm.deadline * 1e9));
  options.bits = plan.config.train.bits == plan::Bits::kFast ? comm::Bits::kFast : comm::Bits::kRun;
  options.chooser =
      std::make_shared<cost::Chooser>(plan.rates, plan::named_algorithms(plan.config.comm));
  return options;
}

world::World meet() {
  const auto configure = [](const std::string& plan_json, comm::GroupOptions& options) {
    options = follow_plan(plan::plan_from_json(plan_json).or_throw(), std::move(options));
  };
  return world::connect({.configure = configure});
}

comm::Group training_group(const world::World& world, const comm::Group& met,
                           const plan::Plan& plan) {
  const bool several = world.num_nodes() > 1;
  const plan::Engine engine = plan.config.comm.engine;
  comm::GroupOptions options = met.options();
  options.name = plan::name_of(engine);
  switch (engine) {
    case plan::Engine::kHierarchical:
      if (several) return met;
      throw Error(base::unsupported(fmt::format(
          "comm.engine = hierarchical joins several hosts, and all {} ranks are on one: leave "
          "comm.engine out, or start ranks on several hosts by hanji run --nnodes",
          world.size())));
    case plan::Engine::kGloo:
      // Over several hosts they have met by shared memory inside each, and Gloo between them.
      return several ? met : comm::gloo::make_group(met, std::move(options));
    case plan::Engine::kMpi:
      return several ? world.joined_by(world::HostEngine::kMpi, std::move(options))
                     : comm::mpi::make_group(met, std::move(options));
    default: return met;
  }
}

}  // namespace hanji::train
