#include "hanji/comm/reduce.h"

#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

Work reduce(at::Tensor& output, const at::Tensor& input, int root, const Group& group,
            const ReduceOptions& options, std::source_location call_site) {
  Request request = open_request(schedule::Routine::kReduce, options, call_site);
  request.root = root;
  request.input = input;
  check_root(request, group);
  check_tensor(input, "input", request, group);
  if (group.rank() == root) {
    request.output = output;
    check_tensor(output, "output", request, group);
  }
  set_reduced(request, input.scalar_type(), input.numel(), {});
  check_extents(request, group);
  return submit(std::move(request), group);
}

Work reduce(at::Tensor& tensor, int root, const Group& group, const ReduceOptions& options,
            std::source_location call_site) {
  return reduce(tensor, tensor, root, group, options, call_site);
}

}  // namespace hanji::comm
