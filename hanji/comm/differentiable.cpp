#include "hanji/comm/differentiable.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <numeric>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/coalesced.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/linear_map.h"
#include "hanji/comm/message.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"

namespace hanji::comm::differentiable {
namespace {

using Counts = std::vector<int64_t>;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(base::invalid_argument("differentiable collective: " + why));
}

/// A tensor like `input` with so many rows, in the heap if `input` lies there.
at::Tensor make_output(const at::Tensor& input, int64_t rows, const Group& group) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[0] = rows;
  if (!group.heap().contains(input)) return at::empty(sizes, input.options());
  return group.heap().empty(sizes, input.scalar_type(), "activations");
}

int64_t row_elements(const at::Tensor& input) {
  return std::accumulate(input.sizes().begin() + 1, input.sizes().end(), int64_t{1},
                         std::multiplies<>());
}

Counts counts_of(const Rows& rows, const at::Tensor& input) {
  Counts counts = rows;
  for (int64_t& count : counts) count *= row_elements(input);
  return counts;
}

int64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

/// One routine on tensors with rows: what every form here needs to know.
struct Routine {
  Group group;
  Rows rows;  // of each rank, or of each pair of ranks
  int root;
  std::source_location site;

  bool at_root() const { return group.rank() == root; }
  int64_t own_rows() const { return rows[group.rank()]; }
  int64_t all_rows() const { return sum_of(rows); }

  at::Tensor all_gather(const at::Tensor& input) const {
    at::Tensor output = make_output(input, all_rows(), group);
    comm::all_gather(output, input, counts_of(rows, input), group, {}, site).wait();
    return output;
  }
  at::Tensor reduce_scatter(const at::Tensor& input) const {
    at::Tensor output = make_output(input, own_rows(), group);
    comm::reduce_scatter(output, input, counts_of(rows, input), group, {}, site).wait();
    return output;
  }
  at::Tensor gather(const at::Tensor& input) const {
    at::Tensor output = make_output(input, at_root() ? all_rows() : 0, group);
    comm::gather(output, input, counts_of(rows, input), root, group, {}, site).wait();
    return output;
  }
  at::Tensor scatter(const at::Tensor& input) const {
    at::Tensor output = make_output(input, own_rows(), group);
    comm::scatter(output, input, counts_of(rows, input), root, group, {}, site).wait();
    return output;
  }
  at::Tensor all_to_all(const at::Tensor& input, const Rows& pairs) const {
    int64_t got = 0;
    for (int peer = 0; peer < group.size(); ++peer)
      got += pairs[peer * group.size() + group.rank()];
    at::Tensor output = make_output(input, got, group);
    comm::all_to_all(output, input, counts_of(pairs, input), group, {}, site).wait();
    return output;
  }
};

/// `rows`, or the same for everybody: `each` for each of `entries`.
Routine make_routine(const Group& group, const Rows& rows, Rows even, int root,
                     std::source_location site) {
  if (!rows.empty() && rows.size() != even.size()) {
    refuse(fmt::format("rows has {} entries and must have {}", rows.size(), even.size()));
  }
  return {group, rows.empty() ? std::move(even) : rows, root, site};
}

int64_t divide(int64_t rows, const Group& group) {
  if (rows % group.size() == 0) return rows / group.size();
  refuse(fmt::format("{} rows do not divide among {} ranks; say how many each has", rows,
                     group.size()));
}

void check_rows(const at::Tensor& input) {
  if (!input.defined() || input.dim() == 0) refuse("the input has no first dimension");
}

Rows same(int64_t each, int64_t entries) { return Rows(static_cast<size_t>(entries), each); }

Rows turned(const Rows& pairs, int64_t size) {
  Rows result(pairs.size());
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) result[j * size + i] = pairs[i * size + j];
  }
  return result;
}

// The root's tensor on every rank, and its transposed: the sum on the root, zeros elsewhere.
LinearMap spread_from(int root, const Group& group, std::source_location site) {
  const auto spread = [=](const at::Tensor& x) {
    at::Tensor output = x.clone();
    comm::broadcast(output, root, group, {}, site).wait();
    return output;
  };
  const auto collect = [=](const at::Tensor& x) {
    at::Tensor output = at::zeros_like(x);
    comm::reduce(output, x, root, group, {}, site).wait();
    return output;
  };
  return {spread, collect};
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& input, const Group& group, std::source_location call_site) {
  const auto sum = [group, call_site](const at::Tensor& x) {
    at::Tensor output = group.heap().contains(x)
                            ? group.heap().empty(x.sizes(), x.scalar_type(), "activations")
                            : at::empty_like(x);
    comm::all_reduce(output.copy_(x), group, {}, call_site).wait();
    return output;
  };
  return apply_linear(input, {sum, sum});
}

at::Tensor all_reduce(const at::Tensor& input, double factor, const Group& group,
                      std::source_location call_site) {
  const auto sum = [group, factor, call_site](const at::Tensor& x) {
    at::Tensor output = x.clone();
    const AllReduceOptions options{.op = schedule::ReduceOp::kPremulSum, .factor = factor};
    comm::all_reduce(output, group, options, call_site).wait();
    return output;
  };
  const auto back = [group, factor, call_site](const at::Tensor& gradient) {
    at::Tensor output = gradient.clone();
    comm::all_reduce(output, group, {}, call_site).wait();
    return output.mul_(factor);
  };
  return apply_linear(input, {sum, back});
}

at::Tensor send_recv(const at::Tensor& input, int to, int from, const Group& group,
                     int64_t num_rows, std::source_location call_site) {
  check_rows(input);
  const int64_t given = input.size(0);
  const int64_t got = num_rows < 0 ? given : num_rows;
  if ((to == group.rank()) != (from == group.rank()) || (to == group.rank() && got != given)) {
    refuse(
        fmt::format("rank {} sends {} rows to rank {} and receives {} from rank {}; what it gives "
                    "to itself it also gets",
                    group.rank(), given, to, got, from));
  }
  const auto pass = [group, call_site](const at::Tensor& x, int target, int source, int64_t rows) {
    if (target == group.rank()) return x.clone();
    at::Tensor output = make_output(x, rows, group);
    coalesce(group, [&] {
      (void)send(x, target, group, {}, call_site);
      (void)recv(output, source, group, {}, call_site);
    }).wait();
    return output;
  };
  return apply_linear(input, {[=](const at::Tensor& x) { return pass(x, to, from, got); },
                              [=](const at::Tensor& x) { return pass(x, from, to, given); }});
}

at::Tensor broadcast(const at::Tensor& input, int root, const Group& group,
                     std::source_location call_site) {
  return apply_linear(input, spread_from(root, group, call_site));
}

at::Tensor reduce(const at::Tensor& input, int root, const Group& group,
                  std::source_location call_site) {
  const LinearMap map = spread_from(root, group, call_site);
  return apply_linear(input, {map.backward, map.forward});
}

at::Tensor all_gather(const at::Tensor& input, const Group& group, const Rows& rows,
                      std::source_location call_site) {
  check_rows(input);
  const auto routine = make_routine(group, rows, same(input.size(0), group.size()), 0, call_site);
  return apply_linear(input,
                      {[routine](const at::Tensor& x) { return routine.all_gather(x); },
                       [routine](const at::Tensor& x) { return routine.reduce_scatter(x); }});
}

at::Tensor reduce_scatter(const at::Tensor& input, const Group& group, const Rows& rows,
                          std::source_location call_site) {
  check_rows(input);
  const int64_t each = rows.empty() ? divide(input.size(0), group) : 0;
  const auto routine = make_routine(group, rows, same(each, group.size()), 0, call_site);
  return apply_linear(input, {[routine](const at::Tensor& x) { return routine.reduce_scatter(x); },
                              [routine](const at::Tensor& x) { return routine.all_gather(x); }});
}

at::Tensor gather(const at::Tensor& input, int root, const Group& group, const Rows& rows,
                  std::source_location call_site) {
  check_rows(input);
  const auto routine =
      make_routine(group, rows, same(input.size(0), group.size()), root, call_site);
  return apply_linear(input, {[routine](const at::Tensor& x) { return routine.gather(x); },
                              [routine](const at::Tensor& x) { return routine.scatter(x); }});
}

at::Tensor scatter(const at::Tensor& input, int root, const Group& group, const Rows& rows,
                   std::source_location call_site) {
  check_rows(input);
  const int64_t each = rows.empty() ? divide(input.size(0), group) : 0;
  const auto routine = make_routine(group, rows, same(each, group.size()), root, call_site);
  const auto back = [routine](const at::Tensor& gradient) {
    at::Tensor gathered = routine.gather(gradient);
    if (routine.at_root()) return gathered;
    return make_output(gradient, routine.all_rows(), routine.group).zero_();
  };
  return apply_linear(input, {[routine](const at::Tensor& x) { return routine.scatter(x); }, back});
}

at::Tensor all_to_all(const at::Tensor& input, const Group& group, const Rows& rows,
                      std::source_location call_site) {
  check_rows(input);
  const int64_t size = group.size();
  const int64_t each = rows.empty() ? divide(input.size(0), group) : 0;
  const auto routine = make_routine(group, rows, same(each, size * size), 0, call_site);
  return apply_linear(
      input, {[routine](const at::Tensor& x) { return routine.all_to_all(x, routine.rows); },
              [routine, size](const at::Tensor& x) {
                return routine.all_to_all(x, turned(routine.rows, size));
              }});
}

}  // namespace hanji::comm::differentiable
