#include "hanji/parallel/fsdp/description.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/units.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

const char* cost_of(Residence residence) {
  switch (residence) {
    case Residence::kShared:
      return "parameters lie once on this host, in the heap: unsharding a unit is a lease, no "
             "byte moves, and resharding frees nothing";
    case Residence::kReplicated:
      return "parameters lie whole on every rank: an all_gather of all after each step";
    case Residence::kGathered:
      return "a unit is gathered before it computes, and its memory is freed after";
  }
  return "";
}

/// What one unit is computed and added up in, where that is not what it is.
std::string to_string(const UnitDtypes& dtypes) {
  std::string text;
  if (dtypes.compute != dtypes.shard) {
    text += fmt::format(", computed with in {}", c10::toString(dtypes.compute));
  }
  if (dtypes.reduce != dtypes.shard) {
    text += fmt::format(", gradients added up in {}", c10::toString(dtypes.reduce));
  }
  return text;
}

}  // namespace

std::string describe(const Sharded& sharded) {
  const ShardedModel& model = model_of(sharded);
  const ShardedModel::Spec& spec = model.spec();
  std::string text =
      fmt::format("{} over {}; {}\n", spec.caller, base::counted(model.group().size(), "rank"),
                  cost_of(spec.residence));
  if (spec.secondary) {
    const bool gathered = spec.residence == Residence::kGathered;
    text += fmt::format("after forward units are {} over {}, reshard_after_forward_to{}\n",
                        gathered ? "resharded" : "not resharded",
                        base::counted(spec.secondary->size(), "rank"),
                        gathered ? ", which gather them for backward"
                                 : ": it changes nothing where parameters lie once");
  }
  const std::string mixed = to_string(spec.gradients.options.precision);
  if (!mixed.empty())
    text += "precision: " + mixed + "; the shards are masters in their own dtype\n";
  if (model.store() != nullptr) text += "shards: " + model.store()->description() + "\n";
  for (const auto& unit : model.units()) {
    const UnitPart& part = unit->part();
    int64_t elements = 0;
    for (const int64_t size : part.plan.flat.sizes) elements += size;
    const auto counts = layout::shard_counts(part.plan);
    text += fmt::format("unit {}: {} parameters, {} elements of {}{}{}, shards of {} to {}\n",
                        part.name.empty() ? "(root)" : part.name, part.parameters.size(), elements,
                        c10::toString(part.dtypes.shard), part.learns() ? "" : ", frozen",
                        to_string(part.dtypes), *std::ranges::min_element(counts),
                        *std::ranges::max_element(counts));
  }
  return text;
}

}  // namespace hanji::parallel
