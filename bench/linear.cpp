// linear [--smoke]: what should cross between ranks that share one linear layer: its input, its output or
// its weights?
//
// Forward and backward of y = x W on two ranks, each way of compare_moved() against the way that it puts
// first. The ends of the layer lie as each way leaves them. Values are small whole numbers, so results
// and gradients must be those of the whole product bit for bit; they are verified first.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <functional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/cost/linear_region.h"
#include "hanji/parallel/tensor/gathered_linear.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/regions.h"
#include "hanji/report/statistics.h"
#include "hanji/topology/machine.h"
#include "hanji/world/spawn.h"

using namespace hanji;
using namespace hanji::parallel::tensor;
using cost::Moved;

namespace {

constexpr int kRanks = 2;

/// Below max(k, n) rows and above 1.5 max(k, n), for a wide input, a wide output and neither.
struct Sizes {
  int64_t rows, inputs, outputs;
};
constexpr Sizes kSizes[] = {{512, 1024, 64},  {4096, 1024, 64}, {512, 64, 1024},
                            {4096, 64, 1024}, {256, 512, 512},  {2048, 512, 512}};

at::Tensor whole_numbers(int64_t rows, int64_t columns) {
  return at::arange(rows * columns).remainder(5).sub(2).to(at::kFloat).view({rows, columns});
}

/// One rank's part of a layer, and how it computes its part of the output.
struct Way {
  at::Tensor x, weight, gradient;  ///< This rank's parts, the last of the output's gradient.
  std::function<at::Tensor()> forward;
};

Way way_of(Moved moved, const Sizes& of, const Axis& axis) {
  const auto part = [&](const at::Tensor& whole, int64_t dim) {
    return axis.own_part(whole, dim).contiguous();
  };
  const bool gathers = moved == Moved::kInput, adds = moved == Moved::kOutput;
  const at::Tensor x = whole_numbers(of.rows, of.inputs),
                   weight = whole_numbers(of.outputs, of.inputs);
  Way way{.x = part(x, adds ? -1 : -2).requires_grad_(),
          .weight = part(weight, adds ? 1 : 0).requires_grad_(),
          .gradient = part(whole_numbers(of.rows, of.outputs), gathers ? -1 : -2),
          .forward = {}};
  way.forward = [=]() -> at::Tensor {
    const compute::Weight own{way.weight, {}};
    if (gathers) {
      return column_linear(gather(Typed<Tokens>(way.x), axis), Parameter<Sharded<0>>{own}).value();
    }
    if (adds) {
      const auto terms = row_linear(Typed<Features>(way.x), Parameter<Sharded<1>>{own});
      return scatter_sum<-2>(terms, axis).value();
    }
    return gathered_linear(Typed<Tokens>(way.x), Parameter<Sharded<0>>{own}, axis).value();
  };
  return way;
}

void verify(Moved moved, const Sizes& of, const Axis& axis) {
  const Way own = way_of(moved, of, axis), whole = way_of(moved, of, Axis());
  const at::Tensor y = own.forward(), whole_y = whole.forward();
  y.backward(own.gradient);
  whole_y.backward(whole.gradient);
  const int64_t rows = -2, columns = -1;
  const auto is_part = [&](const at::Tensor& part, const at::Tensor& all, int64_t dim) {
    return at::equal(part, axis.own_part(all, dim));
  };
  const bool adds = moved == Moved::kOutput;
  if (!is_part(y, whole_y, moved == Moved::kInput ? columns : rows) ||
      !is_part(own.x.grad(), whole.x.grad(), adds ? columns : rows) ||
      !is_part(own.weight.grad(), whole.weight.grad(), adds ? 1 : 0)) {
    throw std::runtime_error(fmt::format("a wrong product where the {} moves", name_of(moved)));
  }
}

/// Seconds of one forward and backward.
double timed(const Way& way, const comm::Group& group, int passes) {
  comm::barrier(group);
  const int64_t start_ns = base::now_ns();
  for (int pass = 0; pass < passes; ++pass) {
    way.forward().backward(way.gradient);
    way.x.mutable_grad().reset();
    way.weight.mutable_grad().reset();
  }
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9 / passes;
}

struct Effort {
  int pairs, passes;
};

void compare(const comm::Group& group, const Sizes& of, const std::vector<cost::RegionCost>& ways,
             Effort effort) {
  const Axis axis(group);
  for (const cost::RegionCost& way : ways) verify(way.moved, of, axis);
  const Way chosen = way_of(ways[0].moved, of, axis);
  for (const cost::RegionCost& other : std::span(ways).subspan(1)) {
    const Way against = way_of(other.moved, of, axis);
    timed(chosen, group, 1), timed(against, group, 1);
    std::vector<double> first, second, ratios;
    for (int pair = 0; pair < effort.pairs; ++pair) {
      double seconds[2];
      for (const int which : {pair % 2, 1 - pair % 2}) {
        seconds[which] = timed(which == 0 ? chosen : against, group, effort.passes);
      }
      first.push_back(seconds[0]);
      second.push_back(seconds[1]);
      ratios.push_back(seconds[1] / seconds[0]);
    }
    if (group.rank() != 0) continue;
    const auto interval = report::median_interval(ratios);
    fmt::print(
        "{{\"question\": \"linear\", \"ranks\": {}, \"rows\": {}, \"inputs\": {}, \"outputs\": {}, "
        "\"moved\": \"{}\", \"other\": \"{}\", \"seconds\": {:.3g}, \"seconds_other\": {:.3g}, "
        "\"predicted_saving\": {:.3g}, \"ratio_median\": {:.3f}, \"ratio_interval_95\": [{:.3f}, "
        "{:.3f}], \"pairs\": {}}}\n",
        group.size(), of.rows, of.inputs, of.outputs, name_of(ways[0].moved), name_of(other.moved),
        report::median(first), report::median(second), other.seconds - ways[0].seconds,
        report::median(ratios), interval.low, interval.high, effort.pairs);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  cost::Rates rates;
  rates.fitted = comm::fit_costs_here(topology::read_machine().or_throw(),
                                      {.ranks = kRanks, .budget_seconds = smoke ? 0.5 : 5.0})
                     .or_throw()
                     .stored.costs;
  const cost::SecondsOf seconds_of = cost::seconds_on_host(rates, kRanks);
  spawn(kRanks, [&](World& world) {
    at::set_num_threads(1);
    for (const Sizes& of : kSizes) {
      const cost::LinearRegion region{"", of.rows, of.inputs, of.outputs};
      compare(world.group(), of, cost::compare_moved(region, kRanks, sizeof(float), seconds_of),
              smoke ? Effort{2, 1} : Effort{60, 4});
    }
  });
}
