#include <fmt/format.h>

#include "hanji/base/status.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/fsdp/internal/prepare.h"

namespace hanji::parallel {
namespace {

[[noreturn]] void refuse(const std::string& caller, const std::string& why) {
  throw Error(base::invalid_argument(caller + ": " + why));
}

/// With owners filled in; refuses what cannot be.
ShardingOptions resolve(ShardingOptions options, const comm::Group& group,
                        const std::vector<NamedParameter>& parameters, const std::string& caller) {
  options.initial.reset();  // not used after it
  if (options.max_units_in_flight < 1) {
    refuse(caller, "max_units_in_flight is " + std::to_string(options.max_units_in_flight) +
                       "; one unit at least must be whole to compute");
  }
  const bool stable = options.num_grains > 0 || !options.owners.empty();
  if (stable && options.replicas && !options.everyone) {
    refuse(caller, "grains over replicas need `everyone`, the group of all ranks");
  }
  options.owners = stable_owners({caller, options.average, options.num_grains, options.owners},
                                 (options.everyone ? *options.everyone : group).size());
  for (const auto& [name, tensor] : parameters) {
    if (!stable || !tensor.requires_grad()) continue;
    check_stable_sums(caller, name, dtypes_of(tensor.scalar_type(), options.precision).reduce,
                      "give precision.reduce_dtype = float32");
  }
  return options;
}

/// Refuses shards that no memory holds together.
void check_together(const ShardingOptions& options, const ShardedModel::Spec& spec) {
  if (!options.shards_together) return;
  const bool in_file = options.offload && options.offload->parameters;
  const bool is_gathered = spec.residence == Residence::kGathered && !in_file;
  if (is_gathered && comm::shares_memory(spec.gradients.group)) return;
  refuse(spec.caller,
         "shards_together: units are not gathered from shards in memory that ranks share; set "
         "share_memory = false and leave `offload` empty, or leave it out");
}

/// Refuses to keep in a file what cannot be there.
void check_offload(const ShardingOptions& options, const ShardedModel::Spec& spec) {
  if (!options.offload) return;
  const ShardOffload& offload = *options.offload;
  const std::string where = spec.caller + ": offload";
  if (!offload.parameters && !offload.gradients) {
    refuse(where, "neither parameters nor gradients shall lie in the file; leave `offload` empty");
  }
  if (offload.num_windows < 2) {
    refuse(where, "num_windows is " + std::to_string(offload.num_windows) +
                      "; one shard is read while one is written, so at least 2");
  }
  std::string why;
  if (!spec.device.is_cpu()) {
    why = "parameters are on " + spec.device.str() + "; shards in a file need a module on the CPU";
  } else if (offload.parameters && spec.residence == Residence::kShared) {
    why =
        "parameters lie once on this host for all its ranks, and are computed with where they "
        "lie, so none is ever put away; set share_memory = false, or offload.parameters = false";
  } else if (offload.parameters && spec.residence == Residence::kReplicated) {
    why =
        "parameters lie whole on every rank; take fully_shard() with share_memory = false, or set "
        "offload.parameters = false";
  } else if (offload.gradients && options.num_grains > 0) {
    why =
        "stable bits keep whole gradients of every unit in memory, beside which shards are little; "
        "set offload.gradients = false, or num_grains = 0";
  } else if (offload.gradients && spec.gradients.keeps_whole) {
    why =
        "whole gradients of every unit are kept in memory, beside which shards are little; set "
        "offload.gradients = false, or take WholeGradients::kFreed";
  }
  if (!why.empty()) throw Error(base::unsupported(where + ": " + why));
}

const char* word_of(Average average) {
  switch (average) {
    case Average::kMean: return "mean";
    case Average::kSum: return "sum";
    case Average::kWeighted: return "weighted mean";
  }
  return "";
}

/// What ranks must have alike.
std::string to_string(const ShardingOptions& options) {
  std::string text =
      fmt::format("{} of gradients, share_memory = {}, max_units_in_flight = {}",
                  word_of(options.average), options.share_memory, options.max_units_in_flight);
  if (options.num_grains > 0) text += fmt::format(", {} grains", options.num_grains);
  for (const layout::Range& owned : options.owners) {
    text += fmt::format(" [{}, {})", owned.begin, owned.end);
  }
  if (options.offload) {
    text += fmt::format(", offload of parameters = {}, gradients = {}", options.offload->parameters,
                        options.offload->gradients);
  }
  return text;
}

}  // namespace

ShardingOptions agree_on_options(const ShardedModel::Spec& spec, ShardingOptions options) {
  const comm::Group& group = spec.gradients.group;
  const std::string words = to_string(options);
  Mistakes mistakes;
  try {
    check_offload(options, spec);
    check_together(options, spec);
    options = resolve(options, group, spec.parameters, spec.caller);
  } catch (const Error& error) {
    mistakes.add("options", "options", Status(error.code(), error.what()));
  }
  if (options.replicas) check_same_words("sharding", words, *options.replicas, mistakes);
  check_same_words("sharding", words, group, mistakes);
  return options;
}

}  // namespace hanji::parallel
