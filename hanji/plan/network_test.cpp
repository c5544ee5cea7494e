#include "hanji/plan/network.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <regex>

#include "hanji/cost/choose_messages.h"
#include "hanji/cost/select.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/host_messages.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/tree_exchange.h"

namespace hanji::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kLatency = 1e-4;
constexpr double kBandwidth = 125e6;

HostLayout layout_of(std::vector<int> ranks) {
  return {std::move(ranks), {kLatency, kBandwidth, ""}};
}

HostedCall all_reduce(const HostLayout& hosts, int64_t count) {
  cost::Chooser chooser(cost::Rates{});
  return HostedCalls(hosts, chooser)
      .all_reduce(schedule::ReduceOp::kSum, DType::kFloat32, count, true);
}

TEST(Network, AnAllReduceTakesWhatItsBytesTakeOfAHostsLink) {
  constexpr int64_t kCount = 3 << 20;  // 12 MiB: three chunks
  for (const int num_hosts : {2, 3}) {
    const HostedCall call = all_reduce(layout_of(std::vector<int>(num_hosts, 2)), kCount);
    const double per_host = 2.0 * 4 * kCount * (num_hosts - 1) / num_hosts;
    EXPECT_EQ(call.network_bytes, static_cast<int64_t>(per_host) * num_hosts);
    EXPECT_NEAR(call.network_seconds, 3 * 2 * kLatency + per_host / kBandwidth, 1e-9);
    // The wire is the bottleneck: what comes beside it is one comparison and the ends of the call.
    EXPECT_GT(call.seconds, call.network_seconds + kLatency);
    EXPECT_LT(call.seconds, 1.1 * call.network_seconds);
    EXPECT_GT(call.wire_bytes, 0);
  }
}

TEST(Network, ASmallCallTakesItsLatencies) {
  const HostedCall call = all_reduce(layout_of({1, 1}), 1);
  EXPECT_NEAR(call.seconds, 3 * kLatency, 2e-5);
  EXPECT_EQ(call.wire_bytes, 0);  // each rank is alone on its host
}

TEST(Network, OnAFastLinkMemoryIsTheBottleneck) {
  HostLayout hosts = layout_of({2, 2});
  hosts.link = {1e-9, 1e15, ""};
  const HostedCall call = all_reduce(hosts, 8 << 20);
  EXPECT_GT(call.seconds, 100 * call.network_seconds);
}

TEST(Network, ATreeTakesWhatItsMessagesTakeOfTheBusiestHost) {
  constexpr int64_t kCount = 960;
  const HostLayout hosts = layout_of({2, 1});
  cost::Chooser chooser(cost::Rates{});
  // Each rank has one partial sum; slices are of 320.
  const std::vector<layout::Range> owners = {{0, 1}, {1, 2}, {2, 3}};
  const HostedCall call =
      HostedCalls(hosts, chooser).tree(schedule::grain_tree(3, owners), DType::kFloat64, kCount);
  // Everybody sends its peers' slices and twice its own; of that host 1 sends all.
  EXPECT_EQ(call.network_bytes, 8 * (2 * kCount + 2 * kCount));
  const double host_1 = 8.0 * (640 + 2 * 320);
  EXPECT_NEAR(call.network_seconds, 2 * kLatency + host_1 / kBandwidth, 1e-9);
}

TEST(Network, ATreesBytesAreThoseOfTheListThatTheRanksRun) {
  // Rank 1 owns two grains that no subtree joins, so it has two partial sums; slices are uneven.
  constexpr int64_t kCount = 1000;
  const std::vector<layout::Range> owners = {{0, 1}, {1, 3}, {3, 4}, {4, 8}, {8, 9}, {9, 12}};
  const std::vector<int> host_of = {0, 0, 0, 1, 2, 2};
  const schedule::StepList list = schedule::tree_exchange(owners, kCount);
  std::vector<int64_t> out(3), in(3);
  int64_t sent = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    for (const schedule::Step& step : list.per_rank[rank]) {
      if (step.kind != schedule::StepKind::kSend) continue;
      sent += 8 * step.count;
      if (host_of[rank] == host_of[step.peer]) continue;
      out[host_of[rank]] += 8 * step.count;
      in[host_of[step.peer]] += 8 * step.count;
    }
  }
  const auto most =
      static_cast<double>(std::max(*std::ranges::max_element(out), *std::ranges::max_element(in)));
  cost::Chooser chooser(cost::Rates{});
  const HostLayout hosts = layout_of({3, 1, 2});
  const HostedCall call =
      HostedCalls(hosts, chooser).tree(schedule::grain_tree(12, owners), DType::kFloat64, kCount);
  EXPECT_EQ(call.network_bytes, sent);
  EXPECT_NEAR(call.network_seconds, 2 * kLatency + most / kBandwidth, 1e-12);
}

TEST(Network, SharesAndBroadcastsTravelOnceToEachOtherHost) {
  const HostLayout hosts = layout_of({2, 1, 1});
  cost::Chooser chooser(cost::Rates{});
  HostedCalls calls(hosts, chooser);
  EXPECT_EQ(calls.all_gather(DType::kFloat64, 5).network_bytes, 4 * 5 * 8 * 2);
  EXPECT_EQ(calls.broadcast(DType::kFloat64, 5).network_bytes, 5 * 8) << "the root sends at least";
  EXPECT_GT(calls.broadcast(DType::kFloat64, 5).seconds, 2 * kLatency);
}

TEST(Network, AGroupLiesOnTheHostsOfItsMembers) {
  const HostLayout all = layout_of({2, 3, 1});
  EXPECT_THAT(hosts_of(all, {0, 1}).ranks, ElementsAre(2));
  EXPECT_THAT(hosts_of(all, {1, 2, 4}).ranks, ElementsAre(1, 2));
  EXPECT_THAT(hosts_of(all, {0, 5}).ranks, ElementsAre(1, 1));
  EXPECT_THAT(hosts_of({}, {0, 5}).ranks, ElementsAre(2));
}

TEST(Network, ConfiguredFiguresComeBeforeMeasuredOnesBeforeAssumedOnes) {
  const cost::Network measured{.latency_seconds = 2e-5, .bytes_per_second = 1e9};
  CommConfig comm;
  EXPECT_EQ(choose_link(comm, {}).bytes_per_second, cost::kAssumedNetwork.bytes_per_second);
  EXPECT_THAT(choose_link(comm, {}).source, HasSubstr("assumed"));
  EXPECT_EQ(choose_link(comm, measured).bytes_per_second, 1e9);
  EXPECT_THAT(choose_link(comm, measured).source, HasSubstr("measured when the ranks met"));
  comm.link_bytes_per_second = 125000000;
  const Link half = choose_link(comm, measured);
  EXPECT_EQ(half.bytes_per_second, 125e6);
  EXPECT_EQ(half.latency_seconds, 2e-5);
  EXPECT_THAT(half.source, HasSubstr("bandwidth configured, latency measured"));
  comm.link_latency = 1e-3;
  EXPECT_EQ(choose_link(comm, measured).source, "configured");
}

TEST(Network, RanksAreSpreadEvenly) {
  EXPECT_THAT(spread_ranks(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(spread_ranks(4, 4), ElementsAre(1, 1, 1, 1));
}

PlanInputs two_hosts() {
  PlanInputs inputs;
  inputs.machine.usable_cores = 2;
  inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.data = {65, 10000, 1000};
  inputs.config.run.ranks = 4;
  inputs.config.comm.link_bytes_per_second = 125000000;
  inputs.ranks_per_host = {2, 2};
  return inputs;
}

TEST(Network, AStepOnTwoHostsContainsItAndSaysWhichFiguresItTook) {
  PlanInputs inputs = two_hosts();
  for (const Bits bits : {Bits::kRun, Bits::kStable}) {
    inputs.config.train.bits = bits;
    const Plan there = make_plan(inputs).or_throw();
    EXPECT_GT(there.predicted.network_seconds, 0);
    EXPECT_GE(there.predicted.transfer_seconds, there.predicted.network_seconds);
    EXPECT_GT(there.predicted.network_bytes_per_step, 8 * there.model.num_parameters());
    EXPECT_THAT(describe(there), testing::ContainsRegex("2 hosts with 2, 2 ranks, joined at 125 "
                                                        "MB/s"));
    EXPECT_THAT(describe(there), HasSubstr("of it between hosts"));
    PlanInputs one = inputs;
    one.ranks_per_host.clear();
    const Plan here = make_plan(one).or_throw();
    EXPECT_GT(there.predicted.step_seconds, here.predicted.step_seconds);
    EXPECT_EQ(here.predicted.network_seconds, 0);
    EXPECT_THAT(describe(here), testing::Not(HasSubstr("between hosts")));
  }
}

std::string flat_text(const Plan& plan) {
  return std::regex_replace(describe(plan), std::regex("\\s+"), " ");
}

PlanInputs cut_on_hosts(std::vector<int> ranks_per_host) {
  PlanInputs inputs = two_hosts();
  inputs.config.parallel.data = Sharding::kHybrid;
  inputs.config.run.ranks = std::accumulate(ranks_per_host.begin(), ranks_per_host.end(), 0);
  inputs.ranks_per_host = std::move(ranks_per_host);
  return inputs;
}

TEST(Network, StatesAreCutWithinHostsAsFarAsAllOfThemGo) {
  const auto degrees = [](std::vector<int> ranks_per_host) {
    const Plan plan = make_plan(cut_on_hosts(std::move(ranks_per_host))).or_throw();
    return std::pair(plan.mesh.degree("dp"), plan.mesh.degree("fsdp"));
  };
  EXPECT_EQ(degrees({2, 2}), std::pair(2, 2));
  EXPECT_EQ(degrees({4, 2}), std::pair(3, 2));
  EXPECT_EQ(degrees({3, 2}), std::pair(5, 1));
}

TEST(Network, ShardsOfAllHostsTravelOnceEachWay) {
  const Plan cut = make_plan(cut_on_hosts({2, 2})).or_throw();
  const Plan whole = make_plan(two_hosts()).or_throw();
  // Beside the gradients: which of them were used, a byte for each, by both ranks of a host.
  const auto flags = std::ssize(whole.model.parameter_sizes());
  EXPECT_EQ(cut.predicted.network_bytes_per_step,
            whole.predicted.network_bytes_per_step + 2 * flags);
  EXPECT_LT(total_bytes(rank_memory(cut, 1, 1)), total_bytes(rank_memory(whole, 1, 1)));
}

// Buckets of a quarter of the model travel while backward goes on; the last one, and each that the
// wire still carries then, does not hide.
TEST(Network, WhatIsOnTheWireHidesUntilBackwardEnds) {
  PlanInputs inputs = two_hosts();
  const auto set_seconds_of_a_sample = [&](double seconds) {
    inputs.times = {.samples = 1, .operations = {{"all", 1, seconds}}};
  };
  set_seconds_of_a_sample(0.3);
  inputs.config.comm.bucket_bytes = 1 << 20;
  for (const Sharding data : {Sharding::kReplicas, Sharding::kHybrid}) {
    inputs.config.parallel.data = data;
    const Prediction slow = make_plan(inputs).or_throw().predicted;
    EXPECT_GT(slow.hidden_transfer_seconds, 0);
    EXPECT_LT(slow.hidden_transfer_seconds, slow.network_seconds);
    EXPECT_DOUBLE_EQ(slow.exposed_transfer_seconds,
                     slow.transfer_seconds - slow.hidden_transfer_seconds);
  }
  inputs.config.parallel.data = Sharding::kReplicas;
  const double some = make_plan(inputs).or_throw().predicted.hidden_transfer_seconds;
  set_seconds_of_a_sample(1e-6);  // backward is over before much has travelled
  EXPECT_LT(make_plan(inputs).or_throw().predicted.hidden_transfer_seconds, some);
  inputs.config.comm.bucket_bytes = 1 << 30;  // all but the first MiB travels after backward
  set_seconds_of_a_sample(0.3);
  const Prediction two = make_plan(inputs).or_throw().predicted;
  EXPECT_LT(two.hidden_transfer_seconds, some);
}

PlanInputs sharded_on(std::vector<int> ranks_per_host, Sharding data) {
  PlanInputs inputs = cut_on_hosts(std::move(ranks_per_host));
  inputs.config.parallel.data = data;
  if (data == Sharding::kHybrid) inputs.config.mesh.fsdp = inputs.config.run.ranks;
  return inputs;
}

TEST(Network, ShardsOfSeveralHostsMoveGradientsOnceAndParametersAsOftenAsTheyAreGathered) {
  for (const Sharding data :
       {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3, Sharding::kHybrid}) {
    const Plan plan = make_plan(sharded_on({2, 2}, data)).or_throw();
    const ShardPlan shards = *shards_of(plan);
    EXPECT_TRUE(shards.spans_hosts) << name_of(data);
    const std::vector<int64_t> times = gathers_of(plan, 0).times;
    EXPECT_EQ(times.empty(), !cuts_parameters(data));
    int64_t elements = 0, gathered = 0;
    for (size_t i = 0; i < shards.units.size(); ++i) {
      elements += shards.units[i].flat.count;
      gathered += shards.units[i].flat.count * (times.empty() ? 1 : times[i]);
    }
    // A block goes to the other host; flags and totals of all ranks go there and back.
    const int64_t flags = 2 * std::ssize(plan.model.parameter_sizes());
    const int64_t totals = 2 * 8 * 4;
    const std::vector<int64_t> norms = norm_counts(shards);
    const int64_t norm = 8 * std::reduce(norms.begin(), norms.end());
    EXPECT_EQ(plan.predicted.network_bytes_per_step,
              4 * (elements + gathered) + flags + norm + totals)
        << name_of(data);
    EXPECT_EQ(gathered_between_hosts(plan), 4 * gathered);
    EXPECT_THAT(flat_text(plan), HasSubstr("each has its own shards and their moments; of "));
  }
}

TEST(Network, ARankHasItsShardsForItselfWhereTheySpanHosts) {
  const auto bytes_of = [](const Plan& plan, std::string_view category) {
    for (const MemoryLine& line : rank_memory(plan, plan.micro_batch, 3)) {
      if (line.category == category) return line.bytes;
    }
    return int64_t{-1};
  };
  const Plan zero3 = make_plan(sharded_on({2, 2}, Sharding::kZero3)).or_throw();
  const int64_t shard = shard_bytes(*shards_of(zero3), 3);
  EXPECT_EQ(bytes_of(zero3, "parameter shards"), shard);
  EXPECT_EQ(bytes_of(zero3, "optimizer"), 2 * shard);
  EXPECT_GT(bytes_of(zero3, "unsharded units"), 0);
  const Plan zero1 = make_plan(sharded_on({3, 1}, Sharding::kZero1)).or_throw();
  EXPECT_GE(bytes_of(zero1, "parameters"), 4 * zero1.model.num_parameters());
  EXPECT_EQ(bytes_of(zero1, "optimizer"), 2 * shard_bytes(*shards_of(zero1), 3));
  EXPECT_GT(bytes_of(zero1, "staging between hosts"), 0);
  EXPECT_EQ(bytes_of(make_plan(cut_on_hosts({2, 2})).or_throw(), "staging between hosts"), -1);
}

TEST(Network, SharesTravelInPiecesOnAsManyRailsAsTheSmallestHostHas) {
  const HostLayout hosts = layout_of({3, 2});
  const HostShares shares(hosts, {10, 0, 5, 7, 4});
  EXPECT_EQ(shares.total(), 26);
  EXPECT_THAT(shares.pieces(0), ElementsAre(8, 7, 0));
  EXPECT_THAT(shares.pieces(1), ElementsAre(6, 5));
  EXPECT_THAT(shares.carried(0), ElementsAre(14, 12, 0));
  EXPECT_FALSE(shares.is_direct());
  EXPECT_EQ(shares.busiest(), 15);
  EXPECT_TRUE(HostShares(layout_of({2, 2}), {6, 6, 6, 6}).is_direct());
  Staging staging;
  staging.add(hosts, shares, 4, 4);
  EXPECT_EQ(staging.bytes(), 4 * (26 + 12 + 11));
}

TEST(Network, MessagesTravelOnTheRailThatCarriesWhatIsForTheirReceiver) {
  const HostLayout hosts =
      layout_of({2, 1});  // one rail: rank 0 carries what rank 1 sends and gets
  const HostMessages messages(hosts, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(messages.between_hosts(), 3 + 6 + 7 + 8);
  EXPECT_EQ(messages.busiest(), 7 + 8);
  EXPECT_EQ(messages.within_hosts(), (4 + 5 + 6) + (2 + 5 + 8));
  EXPECT_EQ(messages.staged(0), 1 + 2 + 4 + 5 + 7 + 8) << "all that comes to its host";
  EXPECT_EQ(messages.staged(1), 4 + 5 + 6);
  EXPECT_EQ(messages.staged(2), 7 + 8 + 9);
  const HostMessages equal(layout_of({1, 1}), {5});
  EXPECT_EQ(equal.between_hosts(), 10);
  EXPECT_EQ(equal.staged(1), 10);
  cost::Chooser chooser(cost::Rates{});
  const HostedCall call = HostedCalls(hosts, chooser).all_to_all(DType::kFloat32, {1 << 20});
  EXPECT_EQ(call.network_bytes, int64_t{4} * 4 << 20);
  EXPECT_DOUBLE_EQ(call.network_seconds, kLatency + (8 << 20) / kBandwidth);
  EXPECT_GT(call.seconds, call.network_seconds);
}

TEST(Network, AHostThatIsAServerIsRefused) {
  EXPECT_THAT(make_plan(sharded_on({2, 2}, Sharding::kServer)).status().message(),
              HasSubstr("set parallel.data = \"zero1\""));
}

TEST(Network, OnOneHostStatesAreCutByNoOtherEngine) {
  PlanInputs inputs = cut_on_hosts({4});
  inputs.config.comm.engine = Engine::kMpi;
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("leave comm.engine out"));
  inputs.config.parallel.data = Sharding::kZero2;
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("leave comm.engine out"));
  inputs.config.comm.engine = Engine::kShm;
  EXPECT_TRUE(make_plan(inputs).ok());
  inputs = cut_on_hosts({2, 2});
  inputs.config.comm.engine = Engine::kMpi;
  EXPECT_TRUE(make_plan(inputs).ok()) << "between hosts";
}

TEST(Network, APlanKeepsItsHosts) {
  const Plan plan = make_plan(two_hosts()).or_throw();
  const Plan read = plan_from_json(to_json(plan)).or_throw();
  EXPECT_EQ(read.hosts, plan.hosts);
  EXPECT_EQ(read.predicted.network_bytes_per_step, plan.predicted.network_bytes_per_step);
  PlanInputs three = two_hosts();
  three.ranks_per_host = {2, 1};
  EXPECT_THAT(make_plan(three).status().message(), HasSubstr("set run.ranks = 3"));
}

}  // namespace
}  // namespace hanji::plan
