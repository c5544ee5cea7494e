#include "hanji/report/strategies_table.h"

#include <fmt/format.h>

#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

using plan::Sharding;

std::string or_none(std::string_view name) { return name.empty() ? "-" : std::string(name); }

std::string meanings_of(const plan::StateWidths& widths, const plan::ShardRanks& ranks) {
  std::string text = fmt::format(
      "\n{}: {} bytes of a parameter, {} of its gradient, {} of the optimizer\n"
      "whole: every rank has it; 1/N: a rank has the part that it updates; servers: they have it, "
      "{}\n"
      "bytes: of one parameter on a rank, states alone; sent: bytes that a rank sends for it in a "
      "step, by rings, at least; x ddp: that, over ddp's\n",
      base::counted(ranks.ranks, "rank"), widths.parameter, widths.gradient, widths.optimizer,
      fmt::format("{:.4g} bytes of a parameter on each of {}",
                  plan::server_bytes(1, widths, ranks).sum(),
                  base::counted(ranks.servers, "server")));
  text += fmt::format("hsdp: shards within groups of {}, which are replicas of each other\n",
                      base::counted(ranks.hybrid_ranks, "rank"));
  return text +
         "FSDP: ShardingStrategy of torch.distributed.fsdp, which keeps parameters of "
         "SHARD_GRAD_OP "
         "whole only from forward to backward; DeepSpeed: zero_optimization.stage, of hsdp with "
         "mics_shard_size\n"
         "Ranks of a host share one copy of parameters and moments in hanji, so that zero3 gathers "
         "nothing there: `hanji plan` prints what a job moves\n";
}

}  // namespace

StrategyNames names_elsewhere(Sharding sharding) {
  switch (sharding) {
    case Sharding::kReplicas: return {"NO_SHARD", "0"};
    case Sharding::kServer: return {"", ""};
    case Sharding::kZero1: return {"", "1"};
    case Sharding::kZero2: return {"SHARD_GRAD_OP", "2"};
    case Sharding::kZero3: return {"FULL_SHARD", "3"};
    case Sharding::kHybrid: return {"HYBRID_SHARD", "3, MiCS"};
  }
  return {};
}

std::string share_of(double bytes, int64_t width) {
  if (bytes == 0) return "servers";
  const double parts = static_cast<double>(width) / bytes;
  return parts < 1.5 ? "whole" : fmt::format("1/{}", std::lround(parts));
}

std::string strategies_table(const plan::StateWidths& widths, const plan::ShardRanks& ranks,
                             int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"data", kLeft},
                         {"FSDP", kLeft},
                         {"DeepSpeed", kLeft},
                         {"params"},
                         {"grads"},
                         {"optim"},
                         {"bytes"},
                         {"sent"},
                         {"x ddp"}});
  const double of_ddp = plan::sent_bytes(Sharding::kReplicas, 1, widths, ranks);
  for (const Sharding sharding : plan::kShardings) {
    const plan::StateBytes states = plan::state_bytes(sharding, 1, widths, ranks);
    const double sent = plan::sent_bytes(sharding, 1, widths, ranks);
    const StrategyNames names = names_elsewhere(sharding);
    table.add(
        {std::string(name_of(sharding)), or_none(names.fsdp), or_none(names.deepspeed),
         share_of(states.parameters, widths.parameter), share_of(states.gradients, widths.gradient),
         share_of(states.optimizer, widths.optimizer), fmt::format("{:.4g}", states.sum()),
         fmt::format("{:.4g}", sent), of_ddp > 0 ? fmt::format("{:.3g}", sent / of_ddp) : ""});
  }
  return table.text(columns) + base::wrap(meanings_of(widths, ranks), columns);
}

std::string strategies_json(const plan::StateWidths& widths, const plan::ShardRanks& ranks) {
  base::Json all = base::Json::array();
  for (const Sharding sharding : plan::kShardings) {
    const plan::StateBytes states = plan::state_bytes(sharding, 1, widths, ranks);
    const StrategyNames names = names_elsewhere(sharding);
    all.push_back({{"data", name_of(sharding)},
                   {"fsdp", names.fsdp},
                   {"deepspeed", names.deepspeed},
                   {"parameter_bytes", states.parameters},
                   {"gradient_bytes", states.gradients},
                   {"optimizer_bytes", states.optimizer},
                   {"sent_bytes", plan::sent_bytes(sharding, 1, widths, ranks)}});
  }
  return base::dump(all, 1) + "\n";
}

}  // namespace hanji::report
