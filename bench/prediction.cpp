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

// One call and the lists that could carry it out: those of [begin, end) in the timed calls, and the
// one that an engine takes, which may be another.
struct Case {
  cost::Query query;
  int64_t bytes = 0;
  size_t begin = 0;
  size_t end = 0;
  size_t pick = 0;
};

struct Grid {
  std::vector<Case> cases;
  std::vector<cost::TimedCall> calls;
};

int64_t count_of(Routine routine, int64_t bytes, int64_t width, int ranks) {
  const int64_t elements = bytes / width;
  return has_shares(routine) ? elements / ranks : elements;
}

// What an engine takes for tensors that lie there.
std::shared_ptr<const schedule::StepList> pick_of(const Case& one, cost::Chooser& chooser) {
  cost::Query query = one.query;
  query.in_heap = true;  // it learns where they lie when the ranks have met
  const cost::Selection& selection = chooser.select(query);
  return one.query.in_heap ? selection.in_heap : selection.if_private;
}

void add_case(Grid& grid, Case one, cost::Chooser& chooser) {
  const auto add = [&](const std::shared_ptr<const schedule::StepList>& list) {
    grid.calls.push_back({list, *one.query.dtype, one.query.in_heap});
  };
  one.begin = grid.calls.size();
  for (const auto& candidate : cost::candidates_for(one.query, cost::Rates())) {
    if (one.query.in_heap || !touches_peer_tensors(*candidate.list)) add(candidate.list);
  }
  one.end = grid.calls.size();
  const auto pick = pick_of(one, chooser);
  one.pick = one.begin;
  while (one.pick < one.end && *grid.calls[one.pick].list != *pick) ++one.pick;
  if (one.pick == one.end) add(pick);
  grid.cases.push_back(std::move(one));
}

Grid make_grid(int ranks, int64_t most_bytes, cost::Chooser& chooser) {
  Grid grid;
  const auto add = [&](Routine routine, int64_t bytes, DType dtype, bool in_heap) {
    const auto width = static_cast<int64_t>(base::size_of(dtype));
    const cost::Query query{.routine = routine,
                            .element_bytes = width,
                            .ranks = ranks,
                            .count = count_of(routine, bytes, width, ranks),
                            .dtype = dtype,
                            .in_heap = in_heap};
    add_case(grid, {query, bytes}, chooser);
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

base::Json timed(const cost::TimedCall& call, const cost::Rates& rates) {
  cost::Rates terms_only = rates;
  terms_only.fitted->corrections.clear();
  return {{"algorithm", call.list->algorithm},
          {"seconds", call.seconds},
          {"predicted_seconds", cost::price_seconds(*call.list, call.element(), rates)},
          {"by_terms_seconds", cost::price_seconds(*call.list, call.element(), terms_only)}};
}

void print(const Case& one, const Grid& grid, const cost::Rates& rates) {
  base::Json json = {{"routine", schedule::name_of(one.query.routine)},
                     {"bytes", one.bytes},
                     {"ranks", one.query.ranks},
                     {"dtype", base::name_of(*one.query.dtype)},
                     {"placement", one.query.in_heap ? "heap" : "private"},
                     {"pick", timed(grid.calls[one.pick], rates)},
                     {"algorithms", base::Json::array()}};
  for (size_t i = one.begin; i < one.end; ++i) {
    json["algorithms"].push_back(timed(grid.calls[i], rates));
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
  Grid grid = make_grid(ranks, most_bytes, chooser);
  base::throw_if_error(comm::time_calls(grid.calls, {.ranks = ranks,
                                                     .rank_cpus = cpus_per_rank(machine, ranks),
                                                     .usable_cores = machine.usable_cores,
                                                     .budget_seconds = 2 * budget}));
  for (const Case& one : grid.cases) print(one, grid, rates);
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
