// What does a parameter server move and hold, and how long does it take, beside an all-reduce?
//
// Bytes come from the plan (layout::server_traffic), which the measured jobs must match. Times are
// measured for as many ranks as there are cores, both sides interleaved; beyond, they are those of the
// closed form at the bandwidth that --link says, and the line says so.
#include <sys/mman.h>

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/heap.h"
#include "hanji/layout/server.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/world/spawn.h"

namespace {

using namespace hanji;

struct Options {
  int64_t mib = 64;
  int pairs = 15;
  double link = 12.5e9;
  bool smoke = false;
  bool json = false;
};

/// n ranks compute; k more only serve. `share`: the ranks that compute serve as well.
struct Placement {
  int n, k;
  bool share;
};

layout::ServerShares shares_of(const Placement& placement, int64_t count) {
  std::vector<int> servers, workers;
  const int first = placement.share ? 0 : placement.n;
  for (int rank = first; rank < placement.n + placement.k; ++rank) servers.push_back(rank);
  for (int rank = 0; rank < placement.n; ++rank) workers.push_back(rank);
  return layout::server_shares(count, placement.n + placement.k, servers, workers).or_throw();
}

struct Weights : torch::nn::Module {
  explicit Weights(int64_t count)
      : weight(register_parameter("weight", at::full({count}, 1.0, at::kFloat))) {}
  at::Tensor weight;
};

/// Medians, least and most of each side; written by rank 0, read by the parent.
struct Measured {
  std::array<double, 3> server, all_reduce;
  bool agrees;
};

std::array<double, 3> spread(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

double seconds_of(const comm::Group& group, const std::function<void()>& work) {
  comm::barrier(group);
  const int64_t start = base::now_ns();
  work();
  comm::barrier(group);
  return static_cast<double>(base::now_ns() - start) * 1e-9;
}

/// Both sides leave the update to plain SGD, which costs as little as an update can.
void measure(world::World& world, const Placement& placement, const Options& options,
             Measured& result) {
  const int64_t count = options.mib << 18;
  const auto shares = shares_of(placement, count);
  const auto sgd = [](parallel::FlatPart part, const parallel::SumOverParts&) {
    return parallel::flat_sgd(std::move(part));
  };
  Weights module(count), twin(count);
  auto server = parallel::parameter_server(module, world.group(),
                                           {.servers = shares.servers,
                                            .workers = shares.workers,
                                            .make_optimizer = sgd,
                                            .rule = parallel::decay_matrices(0)});
  module.weight.mutable_grad() = at::full({count}, world.rank() + 1.0, at::kFloat);
  at::Tensor gradients = world.heap().zeros({count}, at::kFloat, "gradients");
  const auto replica =
      parallel::flat_sgd({twin.weight.detach(), gradients,
                          parallel::flat_pieces({{"weight", twin.weight}}, server.flat_layout(),
                                                {0, count}, parallel::decay_matrices(0))});
  const bool computes = world.rank() < placement.n;
  const comm::Group workers =
      world.group().subgroup(computes ? shares.workers : std::vector<int>{world.rank()}, "workers");
  std::vector<double> with_server, with_all_reduce;
  for (int pair = 0; pair < options.pairs + 2; ++pair) {
    const double one = seconds_of(world.group(), [&] { server.step(.01); });
    const double other = seconds_of(world.group(), [&] {
      if (!computes) return;
      gradients.copy_(module.weight.grad());  // as a worker of the server does
      comm::all_reduce(gradients, workers).wait();
      replica->step(.01, placement.n);
    });
    if (pair < 2) continue;  // memory is touched for the first time
    with_server.push_back(one);
    with_all_reduce.push_back(other);
  }
  if (world.rank() != 0) return;
  const int64_t steps = options.pairs + 2;
  const auto link = layout::server_traffic(shares, 4).links[0];
  result = {spread(with_server), spread(with_all_reduce),
            at::equal(module.weight, twin.weight) && server.moved().sent == steps * link.sent &&
                server.moved().received == steps * link.received};
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

bool is_measured(const Placement& p) {
  return p.n + p.k <= static_cast<int>(std::thread::hardware_concurrency());
}

double model_seconds(const layout::ServerTraffic& traffic, const Options& options) {
  return static_cast<double>(traffic.busiest()) / options.link;
}

/// The times of a placement, or those of the model where there are more ranks than cores.
void print_json(const char* name, const Placement& p, const Options& options,
                const Measured& measured) {
  const auto traffic = layout::server_traffic(shares_of(p, options.mib << 18), 4);
  const auto all_reduce = layout::all_reduce_traffic(options.mib << 18, p.n, 4);
  const bool here = is_measured(p);
  const auto list = [](const std::array<double, 3>& s) {
    return fmt::format("[{:.4g}, {:.4g}, {:.4g}]", s[0], s[1], s[2]);
  };
  fmt::print(
      "{{\"question\": \"server\", \"placement\": \"{}\", \"workers\": {}, \"servers\": {}, "
      "\"serve_too\": {}, \"mib\": {}, \"sent_bytes\": {}, \"received_bytes\": {}, "
      "\"busiest_bytes\": {}, \"network_bytes\": {}, \"model_bytes_per_second\": {}, "
      "\"model_seconds\": {:.4g}, \"all_reduce_model_seconds\": {:.4g}, \"seconds\": {}, "
      "\"all_reduce_seconds\": {}}}\n",
      name, p.n, p.k, p.share, options.mib, traffic.links[0].sent, traffic.links[0].received,
      traffic.busiest(), traffic.network(), options.link, model_seconds(traffic, options),
      model_seconds(all_reduce, options), here ? list(measured.server) : "null",
      here ? list(measured.all_reduce) : "null");
  std::fflush(stdout);
}

void print_traffic(const char* name, const Placement& p, const layout::ServerTraffic& traffic) {
  std::printf("%-26s %3d %3d %10.1f %10.1f %10.1f %10.1f", name, p.n, p.k,
              megabytes(traffic.links[0].sent), megabytes(traffic.links[0].received),
              megabytes(traffic.busiest()), megabytes(traffic.network()));
}

void print_times(const Placement& p, const Options& options, const Measured* shared) {
  if (!is_measured(p)) {
    const auto traffic = layout::server_traffic(shares_of(p, options.mib << 18), 4);
    std::printf("   %8.2f ms, a model: the busiest link at %.1f GB/s\n",
                model_seconds(traffic, options) * 1e3, options.link * 1e-9);
    return;
  }
  const auto& s = shared->server;
  const auto& a = shared->all_reduce;
  std::printf("   %8.2f ms (%.2f to %.2f), all-reduce and update %.2f ms (%.2f to %.2f)%s\n",
              s[0] * 1e3, s[1] * 1e3, s[2] * 1e3, a[0] * 1e3, a[1] * 1e3, a[2] * 1e3,
              shared->agrees ? "" : "  WRONG RESULT");
}

void print_memory(const Options& options) {
  struct Kind {
    const char* name;
    int64_t state_bytes;
  };
  std::printf(
      "\nbytes of model states in MB, 4 workers: per worker and server of the same rank, "
      "worker | server apart, all-reduce\n");
  const int64_t count = options.mib << 18;
  const auto both = shares_of({4, 0, true}, count), apart = shares_of({4, 1, false}, count);
  for (const Kind& kind : {Kind{"SGD", 0}, Kind{"SGD, momentum; Lion", 4}, Kind{"AdamW", 8}}) {
    const auto total = [&](const layout::ServerShares& shares, int rank) {
      return megabytes(layout::server_memory(shares, rank, 4, kind.state_bytes).total());
    };
    std::printf("%-26s %10.1f %10.1f | %.1f %10.1f\n", kind.name, total(both, 0), total(apart, 0),
                total(apart, 4), megabytes(count * (8 + kind.state_bytes)));
  }
}

/// Measures and prints every placement of n ranks that compute; false after a wrong result.
bool run_placements(int n, const Options& options, Measured* shared) {
  bool agrees = true;
  const int64_t count = options.mib << 18;
  if (!options.json) {
    print_traffic("all-reduce", {n, 0, true}, layout::all_reduce_traffic(count, n, 4));
    std::printf("\n");
  }
  const std::array<Placement, 4> placements{
      {{n, 0, true}, {n, 1, false}, {n, n, false}, {n, 1, true}}};
  for (const Placement& p : placements) {
    if (n == 1 && &p != &placements[p.k]) continue;  // the others are the same
    const char* name = !p.share ? "servers apart" : p.k ? "workers and one serve" : "workers serve";
    if (is_measured(p)) {
      world::spawn(p.n + p.k, [&](world::World& world) { measure(world, p, options, *shared); });
      agrees = agrees && shared->agrees;
    }
    if (options.json) {
      print_json(name, p, options, *shared);
      continue;
    }
    print_traffic(name, p, layout::server_traffic(shares_of(p, count), 4));
    print_times(p, options, shared);
    std::fflush(stdout);
  }
  return agrees;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("A parameter server beside an all-reduce");
  Options options;
  app.add_option("--mib", options.mib, "parameters, in MiB of float32")->check(CLI::PositiveNumber);
  app.add_option("--pairs", options.pairs)->check(CLI::PositiveNumber);
  app.add_option("--link", options.link, "bytes per second, for the lines that are a model")
      ->check(CLI::PositiveNumber);
  app.add_flag("--smoke", options.smoke);
  app.add_flag("--json", options.json, "one JSON object per row and nothing else");
  CLI11_PARSE(app, argc, argv);
  if (options.smoke) options.mib = 1, options.pairs = 2;
  if (!options.json) {
    std::printf(
        "%ld MiB of float32; MB per step: sent and received by rank 0, busiest link, network\n",
        static_cast<long>(options.mib));
    std::printf("%-26s %3s %3s %10s %10s %10s %10s\n", "", "n", "k", "sent", "received", "busiest",
                "network");
  }
  void* memory =
      mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 70;
  auto* shared = new (memory) Measured{};
  bool agrees = true;
  for (int n = 1; n <= 8; ++n) agrees = run_placements(n, options, shared) && agrees;
  if (!options.json) print_memory(options);
  return agrees ? 0 : 7;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
