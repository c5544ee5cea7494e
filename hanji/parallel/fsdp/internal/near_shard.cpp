#include "hanji/parallel/fsdp/internal/near_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "hanji/comm/all_gather.h"

namespace hanji::parallel {

NearShard::NearShard(layout::Unit plan, const comm::Group& near)
    : plan_(std::move(plan)), near_(near) {
  plan_.shards = layout::cut_shards(plan_.flat, near_.size());
  counts_ = layout::shard_counts(plan_);
}

void NearShard::keep(const at::Tensor& whole) {
  if (is_kept()) return;  // of an earlier call of the unit: the same values
  const at::NoGradGuard no_grad;
  const layout::Range own = plan_.shards[near_.rank()];
  part_ = whole.device().is_cpu()
              ? near_.heap().empty({own.size()}, whole.scalar_type(), "resharded units")
              : at::empty({own.size()}, whole.options());
  part_.copy_(whole.narrow(0, own.begin, own.size()));
}

comm::Work NearShard::gather(at::Tensor& whole, const std::string& label) const {
  return comm::all_gather(whole, part_, counts_, near_, {.label = label});
}

}  // namespace hanji::parallel
