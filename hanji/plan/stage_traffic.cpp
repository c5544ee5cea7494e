#include "hanji/plan/stage_traffic.h"

#include <algorithm>

#include "hanji/layout/placement.h"
#include "hanji/plan/context.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {
namespace {

/// What the counted rank of an axis, number `counted`, has of `tokens`, and of what is added up by blocks of
/// them: one of each rank where there are none.
struct OwnTokens {
  int64_t tokens, blocks, all_blocks;
};

OwnTokens own_tokens(int64_t tokens, int counted, int degree, int blocks) {
  const int all = std::max(blocks, degree);
  return {layout::part_of(tokens, 1, counted, degree, blocks).size(),
          layout::block_owners(all, degree)[counted].size(), all};
}

/// Of a flow, all ranks of cp and tp together. That of the counted one, which has most of the tokens and of the
/// features, is `of_one`: its own tokens, with parallel.sequence its own of these, and what is added up by
/// blocks of them.
Amount flow_of_all(const Plan& plan, Amount of_one) {
  const Config& config = plan.config;
  const auto blocks = static_cast<int>(config.train.cuts.tokens);
  const int tp = plan.mesh.degree("tp"), cp = plan.mesh.degree("cp");
  const int64_t tokens = plan.model.targets_per_sample;
  int64_t own = tokens;
  if (cp > 1) {
    own = std::ranges::max(context_extents(config));
    const int counted = blocks > 1 ? layout::largest_part(cp, blocks) : 0;
    const OwnTokens here = own_tokens(tokens, counted, cp, blocks);
    of_one.fixed = of_one.fixed / here.blocks * here.all_blocks;
  }
  if (config.parallel.sequence) {
    const int counted = layout::largest_part(tp, static_cast<int>(config.train.cuts.features));
    const OwnTokens here = own_tokens(own, counted, tp, blocks);
    return {of_one.fixed / here.blocks * here.all_blocks, of_one.per_sample * tokens / here.tokens};
  }
  return {tp * of_one.fixed, tp * (of_one.per_sample * tokens / own)};
}

/// What a stage returns.
Amount flow_out_of(const Plan& plan, layout::Range stage) {
  return flow_of_all(plan, plan.model.layers[stage.end - 1].flow);
}

/// By stage: of the first rank that cuts it; all ranks that do are on its host.
std::vector<int> hosts_of_stages(const Plan& plan, int data_coordinate) {
  const int first = plan.mesh.data_group(0)[data_coordinate];
  const std::vector<int> stages = plan.mesh.members(first, "pp").or_throw();
  std::vector<int> hosts;
  for (const int rank : ranks_of_stages(plan)) hosts.push_back(plan.hosts.host_of(stages[rank]));
  return hosts;
}

}  // namespace

StageTraffic stage_traffic(const Plan& plan) {
  const std::vector<layout::Range> stages = stages_of(plan);
  const std::vector<int> rank_of_stage = ranks_of_stages(plan);
  StageTraffic traffic{.bytes_per_second = plan.hosts.link.bytes_per_second};
  std::vector<int64_t> out(std::max<size_t>(1, plan.hosts.ranks.size()));
  for (size_t data = 0; data < plan.shares.size(); ++data) {
    const DataShare& share = plan.shares[data];
    const std::vector<int> hosts = hosts_of_stages(plan, static_cast<int>(data));
    for (size_t stage = 0; stage + 1 < stages.size(); ++stage) {
      if (rank_of_stage[stage] == rank_of_stage[stage + 1]) continue;
      const Amount flow = flow_out_of(plan, stages[stage]);
      const int64_t bytes =
          share.num_micro_batches * flow.fixed + share.samples.size() * flow.per_sample;
      const bool passes = hosts[stage] != hosts[stage + 1];
      (passes ? traffic.network_bytes : traffic.bytes) += 2 * bytes;
      if (!passes) continue;
      for (const int host : {hosts[stage], hosts[stage + 1]}) out[host] += bytes;
    }
  }
  const auto busiest = std::ranges::max_element(out);
  traffic.busiest_host = static_cast<int>(busiest - out.begin());
  traffic.busiest_bytes = *busiest;
  return traffic;
}

bool passes_hosts(const Plan& plan, int stage, int data_coordinate) {
  const std::vector<int> hosts = hosts_of_stages(plan, data_coordinate);
  return hosts[stage] != hosts[stage + 1];
}

std::vector<double> message_seconds(const Plan& plan, int data_coordinate) {
  if (!plan.hosts.several()) return {};
  const std::vector<layout::Range> stages = stages_of(plan);
  std::vector<std::vector<int>> hosts;
  for (size_t data = 0; data < plan.shares.size(); ++data) {
    hosts.push_back(hosts_of_stages(plan, static_cast<int>(data)));
  }
  const std::vector<int>& own = hosts[data_coordinate];
  std::vector<double> seconds(stages.size() - 1);
  for (size_t stage = 0; stage < seconds.size(); ++stage) {
    if (own[stage] == own[stage + 1]) continue;
    const auto sharers = std::ranges::count_if(hosts, [&](const std::vector<int>& one) {
      return one[stage] == own[stage] && one[stage + 1] != one[stage];
    });
    const int64_t bytes = flow_out_of(plan, stages[stage]).of(plan.micro_batch);
    seconds[stage] = plan.hosts.link.latency_seconds +
                     static_cast<double>(sharers * bytes) / plan.hosts.link.bytes_per_second;
  }
  return seconds;
}

}  // namespace hanji::plan
