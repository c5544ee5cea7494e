#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/plan/sharding.h"

namespace hanji::report {

/// The names of a strategy elsewhere; empty: it has none there.
struct StrategyNames {
  std::string_view fsdp;       ///< torch.distributed.fsdp.ShardingStrategy.
  std::string_view deepspeed;  ///< zero_optimization of DeepSpeed's configuration.
};
StrategyNames names_elsewhere(plan::Sharding sharding);

/// What a rank has of one state of a strategy: "whole", "1/8", "servers".
std::string share_of(double bytes, int64_t width);

/// A line for each strategy of plan::kShardings: its names elsewhere, what a rank has of parameters, gradients and
/// optimizer, bytes of a parameter on a rank, and bytes that a rank sends for it in a step; then what the words mean.
/// All of it from plan::state_bytes() and plan::sent_bytes().
std::string strategies_table(const plan::StateWidths& widths, const plan::ShardRanks& ranks,
                             int columns = base::kTerminalColumns);
/// The same for programs: an array of objects.
std::string strategies_json(const plan::StateWidths& widths, const plan::ShardRanks& ranks);

}  // namespace hanji::report
