#include "hanji/parallel/fsdp/internal/resharding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "hanji/base/status.h"
#include "hanji/base/units.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/agreement.h"

namespace hanji::parallel {
namespace {

const char* const kOption = "reshard_after_forward_to";

/// What can be said without asking the others.
std::string why_not(const FullyShardOptions& options, const comm::Group& group,
                    c10::Device device) {
  const comm::Group& secondary = *options.reshard_after_forward_to;
  if (options.strategy == ShardingStrategy::kShardGradOp) {
    return "with SHARD_GRAD_OP, which keeps units whole after forward; choose FULL_SHARD";
  }
  if (options.strategy == ShardingStrategy::kNoShard) {
    return "with NO_SHARD, which shards nothing; choose FULL_SHARD";
  }
  if (group.size() % secondary.size() != 0) {
    return fmt::format(
        "has {} ranks, which do not divide the {} of group {}; take equal groups, such as "
        "group.split(group.rank() / n, group.rank(), \"host\")",
        secondary.size(), group.size(), group.name());
  }
  if (!secondary.serves(device)) {
    return fmt::format("is group {}, whose engine {} does not move tensors on {}", secondary.name(),
                       secondary.engine(), device.str());
  }
  return {};
}

/// Which ranks of `group` meet in `secondary`; empty if they are the ones they should be.
std::string wrong_members(const comm::Group& secondary, const comm::Group& group) {
  const at::Tensor mine = at::full({1}, group.rank(), at::kLong);
  at::Tensor members = at::empty({secondary.size()}, at::kLong);
  comm::all_gather_on_host(members, mine, secondary, {.label = kOption});
  const int64_t first = group.rank() / secondary.size() * secondary.size();
  std::string found;
  bool consecutive = true;
  for (int i = 0; i < secondary.size(); ++i) {
    const auto member = members.const_data_ptr<int64_t>()[i];
    consecutive = consecutive && member == first + i;
    found += (i > 0 ? ", " : "") + std::to_string(member);
  }
  return consecutive ? std::string() : found;
}

Mistakes mistake(const std::string& why, const std::string& caller) {
  Mistakes mistakes;
  if (!why.empty()) {
    mistakes.add(kOption, kOption, base::invalid_argument(caller + ": " + kOption + " " + why));
  }
  return mistakes;
}

}  // namespace

void agree_on_resharding(const FullyShardOptions& options, const comm::Group& group,
                         c10::Device device, const std::string& caller) {
  const auto& secondary = options.reshard_after_forward_to;
  const std::string why = secondary ? why_not(options, group, device) : std::string();
  const std::string words = secondary ? base::counted(secondary->size(), "rank") : "nothing";
  check_same_words(kOption, words, group, mistake(why, caller));
  if (!secondary) return;
  std::string members = wrong_members(*secondary, group);
  if (!members.empty()) {
    members = fmt::format(
        "joins ranks {} of group {}; take consecutive ones in their order, such as "
        "group.split(group.rank() / n, group.rank(), \"host\")",
        members, group.name());
  }
  check_same_words(kOption, "consecutive ranks", group, mistake(members, caller));
}

}  // namespace hanji::parallel
