#include "hanji/report/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/checksum.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/plan/verifiable.h"

namespace hanji::report {
namespace {

using base::Json;
constexpr size_t kMaxStepsShown = 20;

/// Whether a step is before the first difference.
bool is_equal(const Certificate& certificate, int64_t step) {
  return certificate.equal() || step < certificate.difference->step;
}

std::string gradients_hash(const ObservedStep& step) {
  base::Sha256 hash;
  for (const Digest& digest : step.digests) {
    if (digest.quantity != Quantity::kGradient) continue;
    hash.update(fmt::format("{} {:016x}\n", digest.name, digest.value));
  }
  return hash.hex();
}

int64_t count(const ObservedRun& run, Quantity quantity) {
  if (run.steps.empty()) return 0;
  return std::ranges::count(run.steps.back().digests, quantity, &Digest::quantity);
}

Json coordinates_json(const std::vector<int>& ranks, const layout::MeshShape& mesh) {
  Json all = Json::array();
  for (const int rank : ranks) {
    Json& one = all.emplace_back(Json::object());
    for (const std::string& axis : mesh.used_axes()) one[axis] = mesh.coordinate(rank, axis);
  }
  return all;
}

Json to_json(const FirstDifference& difference, const layout::MeshShape& mesh) {
  Json json = {{"step", difference.step},
               {"quantity", name_of(difference.quantity)},
               {"tensor", difference.tensor},
               {"ranks", difference.ranks},
               {"coordinates", coordinates_json(difference.ranks, mesh)},
               {"axes", difference.axes},
               {"unknown_axes", difference.unknown_axes},
               {"replicas_agree", difference.replicas_agree},
               {"differing_tensors", difference.num_tensors},
               {"of_tensors", difference.of_tensors},
               {"backward", nullptr},
               {"distance", nullptr}};
  if (const auto& one = difference.backward) {
    json["backward"] = {{"rank", one->rank}, {"grain", one->grain}};
  }
  if (const auto& one = difference.distance) {
    const bool finite = std::isfinite(one->largest);
    json["distance"] = {{"largest", finite ? Json(one->largest) : Json()},
                        {"largest_ulps", finite ? Json(one->largest_ulps) : Json()},
                        {"elements", one->num_elements},
                        {"first_element", one->first_element}};
  }
  return json;
}

Json steps_json(const Certificate& certificate) {
  Json steps = Json::array();
  for (const ObservedStep& step : certificate.expected.steps) {
    steps.push_back({{"step", step.step},
                     {"parameters_sha256", step.parameters_sha256},
                     {"gradients_sha256", gradients_hash(step)},
                     {"equal", is_equal(certificate, step.step)}});
  }
  return steps;
}

std::string list(const plan::Plan& plan, const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(name_rank(plan.mesh, rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

std::string grains_of(const Certificate& certificate) {
  std::vector<int64_t> grains;
  for (const layout::Range range :
       plan::grain_owners(certificate.plan.shares, certificate.plan.config.train.grain)) {
    grains.push_back(range.size());
  }
  return fmt::format("{}", fmt::join(grains, " "));
}

std::string order_of(const plan::Plan& plan) {
  return plan.config.train.bits == plan::Bits::kStable
             ? "one grain after another, summed by the tree over grains"
             : "each rank's micro-batches in turn, summed by the tree over ranks";
}

std::string steps_text(const Certificate& certificate) {
  std::string text;
  const auto& steps = certificate.expected.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps.size() > kMaxStepsShown + 1 && i == kMaxStepsShown / 2) {
      i = steps.size() - kMaxStepsShown / 2;
      text += "  ...\n";
    }
    text += fmt::format("  step {:>4}  {}  {}\n", steps[i].step, steps[i].parameters_sha256,
                        is_equal(certificate, steps[i].step) ? "equal" : "DIFFERS");
    if (!is_equal(certificate, steps[i].step)) break;  // what comes after follows from it
  }
  return text;
}

/// "within 1e-12 of each tensor's largest value"; empty: bit for bit.
std::string within_text(const plan::Plan& plan) {
  const double within = plan::verified_within(plan);
  return within == 0 ? "" : fmt::format("within {:g} of each tensor's largest value", within);
}

std::string why(const plan::Plan& plan, const FirstDifference& one) {
  if (one.quantity == Quantity::kBuffer) return "a buffer that is not kept the same on all ranks";
  if (one.step == 0) return "the ranks do not begin where the one process does";
  if (one.backward) {
    return fmt::format("rank {}, grain {}: its own gradients differ before others are added",
                       name_rank(plan.mesh, one.backward->rank), one.backward->grain);
  }
  if (one.quantity == Quantity::kGradient && plan::verified_within(plan) > 0) {
    return "gradients, or adding them up; whose are wrong is known of bits alone";
  }
  if (one.quantity == Quantity::kGradient) {
    return "every rank's own gradients are right; adding them up, or scaling, is not";
  }
  return "the gradients are right; what follows them is not";
}

std::string axes_text(const FirstDifference& one, const layout::MeshShape& mesh) {
  std::vector<std::string> known = mesh.used_axes();
  std::erase_if(known, [&](const std::string& axis) { return one.unknown_axes.contains(axis); });
  std::string text;
  if (!one.axes.empty()) {
    text = fmt::format("  axis       {}: without it the ranks are one process\n",
                       fmt::join(one.axes, ", also "));
  } else if (!known.empty()) {
    text = fmt::format("  axis       none: without {} there is a difference, too\n",
                       fmt::join(known, ", or without "));
  }
  for (const auto& [axis, error] : one.unknown_axes) {
    text +=
        fmt::format("  axis       {} is not known: without it the job fails: {}\n", axis, error);
  }
  return text;
}

std::string difference_text(const plan::Plan& plan, const FirstDifference& one) {
  std::string text = fmt::format("DIFFERS after step {}: {} {} on {}\n", one.step,
                                 name_of(one.quantity), one.tensor, list(plan, one.ranks));
  text += axes_text(one, plan.mesh);
  text += fmt::format("  cause      {}\n", why(plan, one));
  if (one.ranks.size() > 1) {
    text += fmt::format("  replicas   {}\n", one.replicas_agree
                                                 ? "hold the same bits of it, but wrong ones"
                                                 : "hold different bits of it");
  }
  if (const auto& far = one.distance) {
    text += fmt::format("  distance   at most {:.3g}, {:.3g} ulps; {}, the first at {}\n",
                        far->largest, far->largest_ulps,
                        base::counted(far->num_elements, "element"), far->first_element);
  }
  return text + fmt::format("  also       {} of {} of this kind differ on rank {}\n",
                            one.num_tensors, one.of_tensors,
                            name_rank(plan.mesh, one.ranks.front()));
}

}  // namespace

std::string to_json(const Certificate& certificate) {
  const plan::Plan& plan = certificate.plan;
  Json json;
  json["verdict"] = certificate.equal() ? "equal" : "differs";
  json["bits"] = plan::name_of(plan.config.train.bits);
  const double within = plan::verified_within(plan);
  json["within"] = within == 0 ? Json() : Json(within);
  json["farthest"] = within == 0 ? Json() : Json(certificate.farthest);
  json["job_hash"] = plan.job_hash;
  json["seed"] = plan.config.train.seed;
  json["grain"] = plan.config.train.grain;
  json["steps_run"] = plan.config.train.steps;
  json["build"] = certificate.build_id;
  json["host"] = certificate.host;
  json["state_sha256"] = certificate.expected.state_sha256;
  json["first_difference"] =
      certificate.difference ? to_json(*certificate.difference, plan.mesh) : Json(nullptr);
  json["one_process"] = {{"threads", plan.threads}, {"order", order_of(plan)}};
  json["ranks"] = plan.ranks;
  json["steps"] = steps_json(certificate);
  json["plan"] = base::parse_json(plan::to_json(plan)).or_throw();
  return base::dump(json, 2) + "\n";
}

std::string describe(const Certificate& certificate) {
  const plan::Plan& plan = certificate.plan;
  const plan::TrainConfig& train = plan.config.train;
  std::string text =
      fmt::format("verify job {}: {}, seed {}, bits {}\n", plan.job_hash.substr(0, 16),
                  base::counted(train.steps, "step"), train.seed, plan::name_of(train.bits));
  text += fmt::format("one process  no group, no reducer; {}\n", order_of(plan));
  text += fmt::format("{:<12} grains of {}: {}; engine {}, {} bucket{} of at most {}\n",
                      fmt::format("{} rank{}", plan.ranks, plan.ranks == 1 ? "" : "s"), train.grain,
                      grains_of(certificate), plan::name_of(plan::engine_of(plan.config)),
                      plan.num_buckets, plan.num_buckets == 1 ? "" : "s",
                      base::format_bytes(plan.config.comm.bucket_bytes));
  const ObservedRun& run = certificate.expected;
  text +=
      fmt::format("compared     {} gradients, {} parameters, {} buffers, {} of the optimizer,\n",
                  count(run, Quantity::kGradient), count(run, Quantity::kParameter),
                  count(run, Quantity::kBuffer), count(run, Quantity::kOptimizer));
  text += "             loss and gradient norm, on every rank after every step\n";
  const std::string within = within_text(plan);
  if (!within.empty()) text += fmt::format("judged       {}\n", within);
  text += steps_text(certificate);
  if (!certificate.equal()) return text + difference_text(plan, *certificate.difference);
  if (!within.empty()) {
    return text + fmt::format("EQUAL {}: one process and all {}; the farthest is {:.2g} off\n",
                              within, base::counted(plan.ranks, "rank"), certificate.farthest);
  }
  return text + fmt::format("EQUAL: {} on the one process and on all {} rank{}\n", run.state_sha256,
                            plan.ranks, plan.ranks == 1 ? "" : "s");
}

}  // namespace hanji::report
