#include "hanji/train/meet.h"

#include <fmt/format.h>

#include <utility>

#include "hanji/comm/gloo/group.h"
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

comm::Group training_group(const comm::Group& met, const plan::Plan& plan) {
  if (plan.config.comm.engine == plan::Engine::kShm) return met;
  if (met.engine() != "shm") {
    throw Error(base::unsupported(fmt::format(
        "comm.engine = gloo joins the ranks of one host; these are on several, joined by {}: leave "
        "comm.engine = shm, which is shared memory inside each host",
        met.engine())));
  }
  comm::GroupOptions options = met.options();
  options.name = "gloo";
  return comm::gloo::make_group(met, std::move(options));
}

}  // namespace hanji::train
