#include "hanji/parallel/server/parameter_server.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <set>
#include <thread>

#include "hanji/layout/split.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/test/run_ranks.h"
#include "hanji/trace/recorder.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using testing::HasSubstr;

constexpr double kRate = .01;
constexpr int kSteps = 3;

/// Float32 and values over many magnitudes: another order of a sum is another sum.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 37));
    second = register_module("second", torch::nn::Linear(37, 2));
    unused = register_parameter("unused", torch::ones({5}));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor unused;
};

at::Tensor loss_of(Net& net, int64_t grain, int64_t step) {
  const at::Tensor x = torch::arange(6).add(7 * grain + 100 * step).cos().view({2, 3});
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  return net.second(torch::tanh(net.first(x))).square().sum() * scale;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : parameters) tensors.push_back(entry.tensor);
  return tensors;
}

/// One process: the tree as it is written down, and the optimizer on everything.
struct OneProcess {
  Net net;
  std::vector<NamedParameter> parameters = learning_parameters(net);
  layout::FlatLayout layout;
  at::Tensor flat, gradients;

  OneProcess() {
    std::vector<int64_t> sizes;
    for (const auto& entry : parameters) sizes.push_back(entry.tensor.numel());
    layout = layout::flat_layout(sizes);
    flat = torch::zeros({layout.count});
    gradients = torch::zeros({layout.count});
    move_into_flat(tensors_of(parameters), layout, flat);
  }
  at::Tensor sum(int64_t begin, int64_t end, int64_t step) {
    if (end - begin > 1) {
      const int64_t middle = begin + schedule::split_point(end - begin);
      return sum(begin, middle, step) + sum(middle, end, step);
    }
    net.zero_grad(true);
    loss_of(net, begin, step).backward();
    at::Tensor row = torch::zeros({layout.count});
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor gradient = parameters[i].tensor.grad();
      if (gradient.defined()) {
        row.slice(0, layout.offsets[i], layout.offsets[i] + layout.sizes[i])
            .copy_(gradient.reshape({-1}));
      }
    }
    return row;
  }
  void train(int64_t num_grains, double divisor, const MakeOptimizer& make) {
    const auto optimizer = make(
        {flat, gradients, flat_pieces(parameters, layout, {0, layout.count}, decay_matrices(.1))},
        {});
    for (int step = 0; step < kSteps; ++step) {
      gradients.copy_(sum(0, num_grains, step));
      optimizer->step(kRate, divisor);
    }
  }
};

MakeOptimizer adamw() {
  return [](FlatPart part, const SumOverParts&) { return flat_adamw(std::move(part)); };
}

void expect_bits(const Net& net, const OneProcess& expected, const std::string& what) {
  const auto parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(parameters[i], expected.parameters[i].tensor)) << what << ", " << i;
  }
}

struct Case {
  int ranks;
  std::vector<int> servers = {}, workers = {};
  int64_t num_grains = 0;  ///< 0: one backward() per worker.
  std::vector<layout::Range> owners = {};
  int64_t message_bytes = 4 << 20;

  std::string name() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(servers.size()) + " servers, " +
           std::to_string(num_grains) + " grains";
  }
};

ParameterServerOptions options_of(const Case& c) {
  return {.servers = c.servers,
          .workers = c.workers,
          .num_grains = c.num_grains,
          .owners = c.owners,
          .make_optimizer = adamw(),
          .rule = decay_matrices(.1),
          .message_bytes = c.message_bytes};
}

void train(Net& net, ParameterServer& server, int step) {
  if (!server.is_worker()) return;
  net.zero_grad();
  for (int64_t grain = server.grains().begin; grain < server.grains().end; ++grain) {
    server.grain(grain);
    loss_of(net, grain, step).backward();
  }
}

TEST(ParameterServer, PushTellsTheNormOfAllGradientsAndUpdateMakesTheStep) {
  constexpr int64_t kGrains = 4;
  OneProcess expected;
  expected.train(kGrains, 0.5, adamw());
  run_ranks(3, [&](world::World& world) {
    Net net;
    auto server = parameter_server(
        net, world.group(),
        options_of({.ranks = 3, .servers = {0, 2}, .workers = {0, 1}, .num_grains = kGrains}));
    OneProcess alone;
    for (int step = 0; step < kSteps; ++step) {
      train(net, server, step);
      const double norm = server.push();
      if (step == 0) {
        // The server's mean is over grains, the one process's a plain sum.
        EXPECT_EQ(norm, grad_norm(alone.sum(0, kGrains, 0), alone.layout) / kGrains);
      }
      server.update(kRate, 0.5 / kGrains);
    }
    server.synchronize();
    expect_bits(net, expected, "in halves");
  });
}

TEST(ParameterServer, AStepThatIsLeftOutChangesNothing) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), options_of({.ranks = 2, .num_grains = 2}));
    const at::Tensor before = net.first->weight.detach().clone();
    train(net, server, 0);
    server.push();
    EXPECT_TRUE(at::equal(net.first->weight, before));
    train(net, server, 0);
    server.step(kRate);
    EXPECT_FALSE(at::equal(net.first->weight, before));
  });
}

TEST(ParameterServer, AsynchronousStepsHaveNoHalves) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), {.timing = ServerTiming::kAsynchronous});
    EXPECT_THAT([&] { server.push(); }, testing::ThrowsMessage<Error>(HasSubstr("halves")));
    server.finish();
  });
}

TEST(ServerSynchronous, HasTheBitsOfOneProcessWhoeverServes) {
  for (const int64_t num_grains : {6, 11}) {
    OneProcess expected;
    expected.train(num_grains, static_cast<double>(num_grains), adamw());
    const std::vector<Case> cases = {
        {.ranks = 1},
        {.ranks = 2},
        {.ranks = 2, .servers = {0}},
        {.ranks = 3, .servers = {2}, .message_bytes = 100},
        {.ranks = 3, .servers = {0, 1, 2}, .workers = {0, 1}},
        {.ranks = 4, .servers = {1, 3}},
        {.ranks = 4, .servers = {0}, .workers = {0, 1, 2, 3}, .message_bytes = 260},
        {.ranks = 3, .servers = {1}, .owners = {{0, 1}, {1, num_grains}}}};
    for (Case c : cases) {
      c.num_grains = num_grains;
      run_ranks(c.ranks, [&](world::World& world) {
        Net net;
        auto server = parameter_server(net, world.group(), options_of(c));
        for (int step = 0; step < kSteps; ++step) {
          train(net, server, step);
          EXPECT_EQ(server.step(kRate).version, step + 1);
        }
        server.synchronize();
        expect_bits(net, expected, c.name());
      });
    }
  }
}

TEST(ServerSynchronous, WithoutGrainsTheWorkersAreAddedInTheSameOrder) {
  OneProcess expected;
  expected.train(3, 3.0, adamw());
  run_ranks(4, [&](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), options_of({.ranks = 4, .servers = {3}}));
    EXPECT_EQ(server.is_worker(), world.rank() < 3);
    for (int step = 0; step < kSteps; ++step) {
      net.zero_grad();
      if (server.is_worker()) loss_of(net, world.rank(), step).backward();
      server.step(kRate);
    }
    server.synchronize();
    expect_bits(net, expected, "3 workers");
  });
}

TEST(ServerSynchronous, MovesTheBytesOfThePlan) {
  const std::vector<Case> cases = {{.ranks = 3, .servers = {2}, .num_grains = 7},
                                   {.ranks = 4, .num_grains = 6},
                                   {.ranks = 4, .servers = {2, 3}, .message_bytes = 100}};
  for (const Case& c : cases) {
    run_ranks(c.ranks, [&](world::World& world) {
      Net net;
      auto server = parameter_server(net, world.group(), options_of(c));
      const layout::ServerShares& shares = server.shares();
      std::vector<int> parts(shares.workers.size(), 1);
      if (c.num_grains > 0) {
        const auto owners =
            layout::split_grains(c.num_grains, static_cast<int>(parts.size())).or_throw();
        const auto tree = schedule::grain_tree(c.num_grains, owners);
        for (size_t i = 0; i < parts.size(); ++i) {
          parts[i] = static_cast<int>(tree.ranks[i].partials.size());
        }
      }
      for (int step = 0; step < kSteps; ++step) {
        train(net, server, step);
        server.step(kRate);
      }
      const auto link = layout::server_traffic(shares, 4, parts).links[world.rank()];
      EXPECT_EQ(server.moved().sent, kSteps * link.sent) << c.name();
      EXPECT_EQ(server.moved().received, kSteps * link.received) << c.name();
    });
  }
}

TEST(ServerSynchronous, AStepIsFourSpans) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), {.servers = {0}});
    if (server.is_worker()) loss_of(net, 0, 0).backward();
    server.step(kRate);
    std::set<std::string> names;
    for (const auto& event : world.recorder()->events()) {
      names.insert(world.recorder()->name(event.name));
    }
    const std::set<std::string> expected =
        server.is_worker() ? std::set<std::string>{"push", "pull"}
                           : std::set<std::string>{"wait for all", "update", "pull"};
    EXPECT_TRUE(std::ranges::includes(names, expected)) << world.rank();
  });
}

TEST(ServerSynchronous, ServersHoldStateOfTheirRangeOnly) {
  run_ranks(3, [](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), {.servers = {1, 2}});
    if (world.rank() == 0) {
      EXPECT_EQ(server.optimizer(), nullptr);
    } else {
      EXPECT_EQ(server.optimizer()->state_bytes(),
                8 * server.shares().range_of(world.rank()).size());
    }
  });
}

/// A training goes on with other servers from what torch::save would have written.
TEST(ServerState, GoesOnUnderOtherServersWithTheSameBits) {
  constexpr int64_t kGrains = 6;
  OneProcess expected;
  expected.train(kGrains, static_cast<double>(kGrains), adamw());
  Net saved;
  torch::optim::AdamW saved_state(saved.parameters());
  const auto copy = [](const Net& from, const torch::optim::AdamW& state, Net& to,
                       torch::optim::AdamW& into) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < from.parameters().size(); ++i) {
      to.parameters()[i].copy_(from.parameters()[i]);
      into.state()[to.parameters()[i].unsafeGetTensorImpl()] =
          state.state().at(from.parameters()[i].unsafeGetTensorImpl())->clone();
    }
  };
  run_ranks(3, [&](world::World& world) {
    Net net;
    auto server = parameter_server(
        net, world.group(),
        options_of({.ranks = 3, .servers = {0, 2}, .workers = {0, 1}, .num_grains = kGrains}));
    train(net, server, 0);
    server.step(kRate);
    server.synchronize();
    torch::optim::AdamW whole(net.parameters());
    server.gather_state(whole);
    if (world.rank() == 1) copy(net, whole, saved, saved_state);
  });
  run_ranks(2, [&](world::World& world) {
    Net net;
    torch::optim::AdamW whole(net.parameters());
    copy(saved, saved_state, net, whole);
    auto server =
        parameter_server(net, world.group(), options_of({.ranks = 2, .num_grains = kGrains}));
    server.scatter_state(whole);
    for (int step = 1; step < kSteps; ++step) {
      train(net, server, step);
      server.step(kRate);
    }
    expect_bits(net, expected, "resumed");
  });
}

TEST(ServerState, OfAsynchronousServersIsGatheredAfterTheEnd) {
  constexpr int64_t kPushes = 2;
  run_ranks(3, [&](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(),
                                   {.servers = {0, 1}, .timing = ServerTiming::kAsynchronous});
    for (int step = 0; step < kPushes && server.is_worker(); ++step) {
      net.zero_grad();
      loss_of(net, 0, step).backward();
      server.step(kRate);
    }
    server.finish();
    torch::optim::AdamW whole(net.parameters());
    server.gather_state(whole);
    const auto& weight = static_cast<const torch::optim::AdamWParamState&>(
        *whole.state().at(net.first->weight.unsafeGetTensorImpl()));
    EXPECT_EQ(weight.step(), kPushes);
    EXPECT_EQ(weight.exp_avg().sizes(), net.first->weight.sizes());
    EXPECT_GT(weight.exp_avg().abs().sum().item<float>(), 0);
    if (world.rank() != 0) return;
    const int64_t begin = server.flat_layout().offsets[1];  // after `unused`
    const at::Tensor own = server.optimizer()->state()[0].tensor.slice(0, begin, begin + 16);
    EXPECT_TRUE(at::equal(own, weight.exp_avg().view({-1}).slice(0, 0, 16)));
  });
}

TEST(ServerState, IsRefusedWhereItDoesNotFit) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto server = parameter_server(net, world.group(), {.servers = {0}});
    if (server.is_worker()) loss_of(net, world.rank(), 0).backward();
    server.step(kRate);
    torch::optim::SGD other(net.parameters(), torch::optim::SGDOptions(.1));
    EXPECT_THAT([&] { server.gather_state(other); },
                testing::ThrowsMessage<Error>(HasSubstr("for which torch's SGD has no place")));
    torch::optim::AdamW uneven(net.parameters());
    server.gather_state(uneven);
    auto& bias = static_cast<torch::optim::AdamWParamState&>(
        *uneven.state().at(net.second->bias.unsafeGetTensorImpl()));
    bias.step(7);
    EXPECT_THAT([&] { server.scatter_state(uneven); },
                testing::ThrowsMessage<Error>(HasSubstr("that of second.bias 7")));
  });
}

TEST(ServerSynchronous, AdafactorSumsItsStatisticsOverTheServers) {
  const MakeOptimizer make = [](FlatPart part, const SumOverParts& sum) {
    return flat_adafactor(std::move(part), {}, sum);
  };
  OneProcess expected;
  expected.train(2, 2.0, make);
  run_ranks(4, [&](world::World& world) {
    Net net;
    auto options = options_of({.ranks = 4, .servers = {0, 1, 2}, .workers = {2, 3}});
    options.make_optimizer = make;
    auto server = parameter_server(net, world.group(), options);
    for (int step = 0; step < kSteps; ++step) {
      net.zero_grad();
      if (server.is_worker()) loss_of(net, world.rank() - 2, step).backward();
      server.step(kRate);
    }
    server.synchronize();
    for (size_t i = 0; i < expected.parameters.size(); ++i) {
      // Sums of doubles in another order: float32 values may round to a neighbour.
      EXPECT_TRUE(at::allclose(net.parameters()[i], expected.parameters[i].tensor, 1e-6, 1e-7));
    }
  });
}

TEST(ServerSynchronous, ADeadWorkerEndsTheStepOnEveryRank) {
  EXPECT_THROW(run_ranks(3,
                         [](world::World& world) {
                           Net net;
                           auto server = parameter_server(net, world.group(), {.servers = {0}});
                           if (server.is_worker()) loss_of(net, 0, 0).backward();
                           if (world.rank() == 2) throw std::runtime_error("worker 2 fell over");
                           EXPECT_THROW(server.step(kRate), Error);
                           throw std::runtime_error("as expected");
                         }),
               std::exception);
}

/// Steps of `worker` until its share is done; a worker may be slow.
void run_worker(Net& net, ParameterServer& server, int steps, int nap_ms, int64_t bound,
                int64_t& most_stale) {
  for (int step = 0; step < steps; ++step) {
    net.zero_grad();
    loss_of(net, step % 3, step).backward();
    std::this_thread::sleep_for(std::chrono::milliseconds(nap_ms));
    const ServerStep seen = server.step(kRate);
    EXPECT_LE(seen.ahead, bound);
    EXPECT_GT(seen.version, 0);
    most_stale = std::max(most_stale, seen.staleness);
  }
}

TEST(ServerAsynchronous, NobodyIsFurtherAheadThanTheBoundAndEveryPushCounts) {
  constexpr int64_t kPushes = 6;
  for (const int64_t bound : {0, 2}) {
    for (const std::vector<int>& servers : {std::vector<int>{0}, {0, 1}, {0, 1, 2, 3}}) {
      const auto ranks = 4;
      std::array<int64_t, 4> stale{}, updates{};
      std::array<at::Tensor, 4> weights;
      run_ranks(ranks, [&](world::World& world) {
        Net net;
        auto server = parameter_server(net, world.group(),
                                       {.servers = servers,
                                        .timing = ServerTiming::kAsynchronous,
                                        .max_staleness = bound,
                                        .message_bytes = 200});
        const int rank = world.rank();
        if (server.is_worker())
          run_worker(net, server, kPushes, rank == 3 ? 3 : 0, bound, stale[rank]);
        server.finish();
        if (server.is_server()) updates[rank] = server.optimizer()->num_updates();
        server.synchronize();
        weights[rank] = net.first->weight.detach().clone();
      });
      const auto workers = static_cast<int64_t>(servers.size() == 4 ? 4 : 4 - servers.size());
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(at::equal(weights[rank], weights[0])) << rank;
        // Others may have made bound + 1 steps since, and as many while this one was ahead.
        EXPECT_LE(stale[rank], (workers - 1) * (2 * bound + 2));
      }
      for (const int rank : servers) EXPECT_EQ(updates[rank], workers * kPushes);
    }
  }
}

/// Each serves and works, and their pushes cross: what one has answered another must take first.
TEST(ServerAsynchronous, PushesThatCrossAnswersDoNotWaitInACircle) {
  constexpr int kRanks = 6;
  constexpr int kPushes = 150;
  world::ConnectOptions connect;
  connect.group.deadline = std::chrono::seconds(20);
  run_ranks(
      kRanks,
      [&](world::World& world) {
        Net net;
        int64_t most_stale = 0;
        auto server = parameter_server(net, world.group(),
                                       {.servers = {0, 1, 2, 3, 4, 5},
                                        .timing = ServerTiming::kAsynchronous,
                                        .max_staleness = 2});
        run_worker(net, server, kPushes, 0, 2, most_stale);
        server.finish();
        EXPECT_LE(most_stale, (kRanks - 1) * 6);
      },
      connect);
}

TEST(ServerAsynchronous, AStragglerIsNamedAtTheDeadline) {
  world::ConnectOptions connect;
  connect.group.deadline = std::chrono::seconds(1);
  const auto job = [](world::World& world) {
    Net net;
    auto server = parameter_server(
        net, world.group(),
        {.servers = {0}, .timing = ServerTiming::kAsynchronous, .max_staleness = 1});
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    for (int step = 0; step < 5 && world.rank() == 1; ++step) {
      loss_of(net, 0, step).backward();
      server.step(kRate);
    }
    server.finish();
  };
  EXPECT_THAT([&] { run_ranks(3, job, connect); },
              testing::ThrowsMessage<std::exception>(HasSubstr("rank 2 after 0 steps")));
}

TEST(ParameterServerStart, WhatMakesNoSenseIsRefusedOnEveryRank) {
  run_ranks(2, [](world::World& world) {
    Net net;
    const auto refused = [&](const ParameterServerOptions& options, const char* words) {
      EXPECT_THAT([&] { parameter_server(net, world.group(), options); },
                  testing::ThrowsMessage<Error>(HasSubstr(words)));
    };
    refused({.servers = {5}}, "outside");
    refused({.servers = {0}, .workers = {0}}, "neither worker nor server");
    refused({.average = Average::kWeighted}, "kWeighted");
    refused({.timing = ServerTiming::kAsynchronous, .num_grains = 4}, "come in the order");
    refused({.timing = ServerTiming::kAsynchronous, .max_staleness = -1}, "max_staleness");
    refused({.num_grains = 4, .owners = {{0, 4}}}, "names 1 ranks");
    auto server = parameter_server(net, world.group(), {.num_grains = 4});
    EXPECT_THAT([&] { server.step(kRate); },
                testing::ThrowsMessage<Error>(HasSubstr("0 of its grains")));
    EXPECT_THROW(server.finish(), Error);
    Net narrow;
    narrow.to(torch::kBFloat16);
    EXPECT_THAT([&] { parameter_server(narrow, world.group(), {.num_grains = 4}); },
                testing::ThrowsMessage<Error>(HasSubstr("float32")));
    torch::nn::Linear other(3, world.rank() == 0 ? 4 : 5);
    EXPECT_THAT([&] { parameter_server(*other, world.group()); },
                testing::ThrowsMessage<Error>(HasSubstr("weight")));
  });
}

}  // namespace
}  // namespace hanji::parallel
