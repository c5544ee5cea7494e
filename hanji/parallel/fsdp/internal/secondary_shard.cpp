#include "hanji/parallel/fsdp/internal/secondary_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "hanji/comm/all_gather.h"

namespace hanji::parallel {

SecondaryShard::SecondaryShard(layout::Unit plan, const comm::Group& secondary)
    : plan_(std::move(plan)), secondary_(secondary) {
  plan_.shards = layout::cut_shards(plan_.flat, secondary_.size());
  counts_ = layout::shard_counts(plan_);
}

void SecondaryShard::keep(const at::Tensor& whole) {
  if (is_kept()) return;  // of an earlier call of the unit: the same values
  const at::NoGradGuard no_grad;
  const layout::Range own = plan_.shards[secondary_.rank()];
  part_ = whole.device().is_cpu()
              ? secondary_.heap().empty({own.size()}, whole.scalar_type(), "resharded units")
              : at::empty({own.size()}, whole.options());
  part_.copy_(whole.narrow(0, own.begin, own.size()));
}

comm::Work SecondaryShard::gather(at::Tensor& whole, const std::string& label) const {
  return comm::all_gather(whole, part_, counts_, secondary_, {.label = label});
}

}  // namespace hanji::parallel
