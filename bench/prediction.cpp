// Fits costs and then times every candidate of a grid of calls, in the same minute: one JSON object
// per call, with what was predicted and what it took. Read by prediction.py.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "hanji/base/json.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/comm/time_calls.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/schedule/catalogue.h"

namespace {

using namespace hanji;
using schedule::Routine;

// One call and the lists that could carry it out: those of [begin, end) in the timed calls.
struct Case {
  cost::Query query;
  int64_t bytes = 0;
  size_t begin = 0;
  size_t end = 0;
};

struct Grid {
  std::vector<Case> cases;
  std::vector<cost::TimedCall> calls;
};

int64_t count_of(Routine routine, int64_t bytes, int64_t width, int ranks) {
  const int64_t elements = bytes / width;
  return has_shares(routine) ? elements / ranks : elements;
}

void add_case(Grid& grid, Case one) {
  one.begin = grid.calls.size();
  for (const auto& candidate : cost::candidates_for(one.query, cost::Rates())) {
    if (!one.query.in_heap && touches_peer_tensors(*candidate.list)) continue;
    grid.calls.push_back({candidate.list, *one.query.dtype, one.query.in_heap});
  }
  one.end = grid.calls.size();
  grid.cases.push_back(std::move(one));
}

Grid make_grid(int ranks, int64_t most_bytes) {
  Grid grid;
  const auto add = [&](Routine routine, int64_t bytes, DType dtype, bool in_heap) {
    const auto width = static_cast<int64_t>(base::size_of(dtype));
    const cost::Query query{.routine = routine,
                            .element_bytes = width,
                            .ranks = ranks,
                            .count = count_of(routine, bytes, width, ranks),
                            .dtype = dtype,
                            .in_heap = in_heap};
    add_case(grid, {query, bytes});
  };
  for (const Routine routine :
       {Routine::kAllReduce, Routine::kBroadcast, Routine::kAllGather, Routine::kReduceScatter,
        Routine::kAllToAll, Routine::kReduce, Routine::kGather, Routine::kScatter}) {
    for (int64_t bytes = 64 << 10; bytes <= most_bytes; bytes *= 4) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        for (const bool in_heap : {true, false}) add(routine, bytes, dtype, in_heap);
      }
    }
  }
  return grid;
}

// What an engine takes for tensors that lie there.
std::string pick_of(const Case& one, cost::Chooser& chooser) {
  cost::Query query = one.query;
  query.in_heap = true;  // it learns where they lie when the ranks have met
  const cost::Selection& selection = chooser.select(query);
  return (one.query.in_heap ? selection.in_heap : selection.if_private)->algorithm;
}

void print(const Case& one, const Grid& grid, cost::Chooser& chooser) {
  const cost::Rates& rates = chooser.rates();
  cost::Rates terms_only = rates;
  terms_only.fitted->corrections.clear();
  base::Json json = {{"routine", schedule::name_of(one.query.routine)},
                     {"bytes", one.bytes},
                     {"ranks", one.query.ranks},
                     {"dtype", base::name_of(*one.query.dtype)},
                     {"placement", one.query.in_heap ? "heap" : "private"},
                     {"pick", pick_of(one, chooser)},
                     {"algorithms", base::Json::array()}};
  for (size_t i = one.begin; i < one.end; ++i) {
    const cost::TimedCall& call = grid.calls[i];
    json["algorithms"].push_back(
        {{"algorithm", call.list->algorithm},
         {"seconds", call.seconds},
         {"predicted_seconds", cost::price_seconds(*call.list, call.element(), rates)},
         {"by_terms_seconds", cost::price_seconds(*call.list, call.element(), terms_only)}});
  }
  std::cout << json.dump() << "\n";
}

int run(int ranks, int64_t most_bytes, double budget) {
  const auto machine = topology::read_machine().or_throw();
  const comm::Fit fit =
      comm::fit_costs_here(machine, {.ranks = ranks, .budget_seconds = budget}).or_throw();
  cost::Rates rates;
  rates.fitted = fit.stored.costs;
  cost::Chooser chooser(rates);
  Grid grid = make_grid(ranks, most_bytes);
  base::throw_if_error(comm::time_calls(grid.calls, {.ranks = ranks,
                                                     .rank_cpus = cpus_per_rank(machine, ranks),
                                                     .usable_cores = machine.usable_cores,
                                                     .budget_seconds = 2 * budget}));
  for (const Case& one : grid.cases) print(one, grid, chooser);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: prediction RANKS MOST_BYTES SECONDS\n";
    return 2;
  }
  try {
    return run(std::atoi(argv[1]), std::atoll(argv[2]), std::atof(argv[3]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
