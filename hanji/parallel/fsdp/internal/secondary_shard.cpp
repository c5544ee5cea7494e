#include "hanji/parallel/fsdp/internal/secondary_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "hanji/comm/prepare.h"

namespace hanji::parallel {

SecondaryShard::SecondaryShard(const UnitPart& part, const comm::Group& secondary)
    : plan_(part.plan), secondary_(secondary) {
  plan_.shards = layout::cut_shards(plan_.flat, secondary_.size());
  gather_ = comm::prepare(schedule::Routine::kAllGather, part.dtypes.compute,
                          layout::shard_counts(plan_), secondary_, {.label = part.label()});
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

}  // namespace hanji::parallel
