#include "hanji/comm/shared_tensor.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <memory>

#include "hanji/base/private_mapping.h"
#include "hanji/base/status.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/lease.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {

bool shares_memory(const Group& group) { return group.state()->engine().shares_memory(); }

bool shares_memory(const Group& group, int peer) {
  return group.state()->engine().shares_memory_with(peer);
}

at::Tensor shared_zeros(at::IntArrayRef sizes, c10::ScalarType dtype, int root, const Group& group,
                        std::string_view category, std::source_location call_site) {
  // A lease cannot look at a tensor without elements, so all have one.
  const bool ours = group.rank() == root;
  const int64_t count = ours ? std::max<int64_t>(1, c10::multiply_integers(sizes)) : 1;
  const at::Tensor mine = group.heap().zeros({count}, dtype, ours ? category : "leases");
  const Lease lease = all_gather_view(mine, group, {.label = "shared tensor"}, call_site);
  void* data = mine.data_ptr();
  if (!ours) {
    // The lease maps it for reading; the same bytes lie in the mapping that is written.
    const auto& segment = group.heap().segment();
    const auto* seen = static_cast<const std::byte*>(lease[root].const_data_ptr());
    data = segment->data() + (seen - segment->read_only().or_throw());
  }
  return at::from_blob(
      data, sizes, [lease](void*) {}, at::TensorOptions(dtype));
}

at::Tensor private_view(const at::Tensor& shared, const Group& group) {
  if (shared.numel() == 0) return shared;
  const auto& segment = group.heap().segment();
  const auto* data = static_cast<const std::byte*>(shared.const_data_ptr());
  if (data < segment->data() || data + shared.nbytes() > segment->data() + segment->size()) {
    throw Error(base::internal("private_view: the tensor is not in the shared memory of group " +
                               group.name()));
  }
  const auto pages = std::make_shared<base::PrivateMapping>(
      base::PrivateMapping::map(segment->fd(), data - segment->data(), shared.nbytes()).or_throw());
  return at::from_blob(
      pages->data(), shared.sizes(), [pages, shared](void*) {},
      at::TensorOptions(shared.scalar_type()));
}

}  // namespace hanji::comm
