#include "hanji/comm/tree_reduce.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

constexpr std::string_view kStaging = "staging";

void check_parts(const at::Tensor& parts, const at::Tensor& output, const schedule::GrainTree& tree,
                 const Group& group) {
  const auto refuse = [](const std::string& why) {
    throw Error(base::invalid_argument("tree_reduce: " + why));
  };
  if (static_cast<int>(tree.ranks.size()) != group.size()) {
    refuse(fmt::format("the tree is made for {} ranks, and group {} has {}", tree.ranks.size(),
                       group.name(), group.size()));
  }
  const auto partials = static_cast<int64_t>(tree.ranks[group.rank()].partials.size());
  if (parts.dim() != 2 || parts.size(0) < partials) {
    refuse(
        fmt::format("the parts must be [{} or more, stride], one row for each partial sum of "
                    "rank {}, and are [{}]",
                    partials, group.rank(), fmt::join(parts.sizes(), ", ")));
  }
  if (parts.size(0) > 0 && parts.size(1) < output.numel()) {
    refuse(fmt::format("a part has {} elements and the output {}; a part must hold them",
                       parts.size(1), output.numel()));
  }
}

/// Peers read the parts and write the outputs in place, so private tensors go through the heap.
void stage(Request& request, const Group& group) {
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

Work tree_all_reduce(const at::Tensor& parts, at::Tensor& output, const schedule::GrainTree& tree,
                     const Group& group, const CallOptions& options,
                     std::source_location call_site) {
  Request request{.routine = schedule::Routine::kTreeReduce,
                  .tag = options.tag,
                  .input = parts,
                  .output = output,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(parts, "parts", request, group);
  check_tensor(output, "output", request, group);
  check_parts(parts, output, tree, group);
  check_pair(request, 0, 0);
  request.dtype = reduced_dtype(output, request);
  request.count = output.numel();
  request.num_parts = static_cast<int>(parts.size(0));
  request.input_stride = parts.size(1);
  request.steps =
      std::make_shared<const schedule::StepList>(schedule::tree_all_reduce(tree, request.count));
  stage(request, group);
  return submit(std::move(request), group);
}

}  // namespace hanji::comm
