#include "hanji/comm/tree_reduce.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

constexpr std::string_view kStaging = "staging";

[[noreturn]] void refuse_tree_reduce(const std::string& why) {
  throw Error(base::invalid_argument("tree_reduce: " + why));
}

void check_tree(const at::Tensor& parts, const schedule::GrainTree& tree, const Group& group) {
  if (static_cast<int>(tree.ranks.size()) != group.size()) {
    refuse_tree_reduce(fmt::format("the tree is made for {} ranks, and group {} has {}",
                                   tree.ranks.size(), group.name(), group.size()));
  }
  const auto partials = static_cast<int64_t>(tree.ranks[group.rank()].partials.size());
  if (parts.dim() != 2 || parts.size(0) < partials) {
    refuse_tree_reduce(
        fmt::format("the parts must be [{} or more, stride], one row for each partial sum of "
                    "rank {}, and are [{}]",
                    partials, group.rank(), fmt::join(parts.sizes(), ", ")));
  }
}

/// Rows of one tensor, whole, apart, and apart from the output unless it is the first of them.
void check_rows(const at::Tensor& parts, const at::Tensor& output, const Request& request) {
  if (parts.dim() != 2) {
    refuse_tree_reduce(
        fmt::format("the parts must be a matrix and are [{}]", fmt::join(parts.sizes(), ", ")));
  }
  if (parts.size(0) == 0) return;
  if (parts.size(1) < output.numel()) {
    refuse_tree_reduce(
        fmt::format("a part has {} elements and the output {}; a part must hold them",
                    parts.size(1), output.numel()));
  }
  if (parts.size(0) > 1 && parts.stride(0) < parts.size(1)) {
    refuse_tree_reduce(
        fmt::format("rows of {} elements lie {} apart; partial sums must not overlap",
                    parts.size(1), parts.stride(0)));
  }
  for (int64_t row = 0; row < parts.size(0); ++row) {
    Request one = request;
    one.input = parts[row];
    check_pair(one, 0, row == 0 ? 0 : -output.numel());
  }
}

/// Peers read the parts and write the outputs in place, so private tensors go through the heap.
void stage(Request& request, const Group& group) {
  if (!group.state()->engine().shares_memory()) return;
  const at::NoGradGuard no_grad;
  Heap& heap = group.heap();
  if (!heap.contains(request.input)) {
    at::Tensor staged = heap.empty(request.input.sizes(), request.input.scalar_type(), kStaging);
    request.input = staged.copy_(request.input);
  }
  if (!heap.contains(request.output)) {
    request.copy_out = request.output;
    request.output = heap.empty(request.output.sizes(), request.output.scalar_type(), kStaging);
  }
}

}  // namespace

Work tree_all_reduce(const at::Tensor& parts, at::Tensor& output,
                     const std::shared_ptr<const schedule::StepList>& steps, const Group& group,
                     const CallOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kTreeReduce, options, call_site);
  request.input = parts;
  request.output = output;
  request.steps = steps;
  const bool has_rows = parts.defined() && parts.dim() == 2 && parts.size(0) > 0;
  check_tensor(has_rows ? parts[0] : parts, "first part", request, group);
  check_tensor(output, "output", request, group);
  check_rows(parts, output, request);
  request.dtype = reduced_dtype(output.scalar_type(), request);
  request.count = output.numel();
  request.num_parts = static_cast<int>(parts.size(0));
  stage(request, group);
  request.input_stride = request.input.stride(0);
  return submit(std::move(request), group);
}

Work tree_all_reduce(const at::Tensor& parts, at::Tensor& output, const schedule::GrainTree& tree,
                     const Group& group, const CallOptions& options,
                     std::source_location call_site) {
  check_tree(parts, tree, group);
  const auto steps =
      std::make_shared<const schedule::StepList>(schedule::tree_all_reduce(tree, output.numel()));
  return tree_all_reduce(parts, output, steps, group, options, call_site);
}

}  // namespace hanji::comm
