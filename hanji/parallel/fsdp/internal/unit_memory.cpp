#include "hanji/parallel/fsdp/internal/unit_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "hanji/comm/host_values.h"
#include "hanji/comm/shared_tensor.h"

namespace hanji::parallel {
namespace {

const char* const kMasters = "full parameters";

/// Whole parameters that are always there, with a shard that is a part of them or is rounded into it.
class AlwaysWhole : public UnitMemory {
 public:
  AlwaysWhole(const UnitPart& part, at::Tensor whole) : UnitMemory(part) {
    whole_ = std::move(whole);
    shard_ = part.is_mixed() ? comm::zeros_on(part.device, {part.range().size()}, part.dtypes.shard,
                                              part.group, "parameter shards")
                             : part.own_of(whole_);
  }

  at::Tensor all_shards() const override { return part_.is_mixed() ? at::Tensor() : whole_; }

  void begin_publish() override {
    const at::NoGradGuard no_grad;
    if (part_.is_mixed()) part_.own_of(whole_).copy_(shard_);
  }
};

class OnceOnHost : public AlwaysWhole {
 public:
  explicit OnceOnHost(const UnitPart& part)
      : AlwaysWhole(part, comm::shared_zeros({part.plan.flat.count}, part.dtypes.compute, 0,
                                             part.group, "parameters")) {}

  bool is_shared() const override { return part_.group.size() > 1; }

  at::Tensor masters() override {
    at::Tensor all =
        comm::shared_zeros({part_.plan.flat.count}, part_.dtypes.shard, 0, part_.group, kMasters);
    part_.own_of(all).copy_(shard_);
    return all;
  }
};

class WholeOnRank : public AlwaysWhole {
 public:
  explicit WholeOnRank(const UnitPart& part)
      : AlwaysWhole(part, comm::zeros_on(part.device, {part.plan.flat.count}, part.dtypes.compute,
                                         part.group, "parameters")),
        gather_(prepare_gather(part.dtypes.compute)) {
    gather_.bind(whole_, part.own_of(whole_));
  }

  void begin_publish() override {
    AlwaysWhole::begin_publish();
    publishing_ = gather_.start();
  }

  void end_publish() override {
    publishing_.wait();
    publishing_ = {};
  }

 private:
  comm::Call gather_;
  comm::Work publishing_;
};

}  // namespace

void UnitMemory::end_fill() {
  begin_publish();
  end_publish();
}

at::Tensor UnitMemory::masters() {
  at::Tensor all = empty_whole(part_.dtypes.shard, kMasters);
  part_.own_of(all).copy_(shard_);
  prepare_gather(part_.dtypes.shard).start(all, part_.own_of(all)).wait();
  return all;
}

at::Tensor UnitMemory::own_view(const at::Tensor& all) const {
  return is_shared() ? comm::private_view(all, part_.group) : all;
}

void UnitMemory::write_back(const at::Tensor& all) {
  const at::Tensor own = part_.own_of(all);
  if (own.numel() > 0 && own.data_ptr() != shard_.data_ptr()) shard_.copy_(own);
  begin_publish();
  end_publish();
}

at::Tensor UnitMemory::empty_whole(c10::ScalarType dtype, const char* category) const {
  const int64_t count = part_.plan.flat.count;
  if (part_.device.is_cpu()) return part_.group.heap().empty({count}, dtype, category);
  return at::empty({count}, at::TensorOptions(dtype).device(part_.device));
}

comm::Call UnitMemory::prepare_gather(c10::ScalarType dtype) const {
  return comm::prepare(schedule::Routine::kAllGather, dtype, layout::shard_counts(part_.plan),
                       part_.group, {.label = part_.label()});
}

std::unique_ptr<UnitMemory> place(const UnitPart& part, const Home& home) {
  switch (home.residence) {
    case Residence::kShared: return std::make_unique<OnceOnHost>(part);
    case Residence::kReplicated: return std::make_unique<WholeOnRank>(part);
    case Residence::kGathered: return place_gathered(part, home);
  }
  return nullptr;
}

}  // namespace hanji::parallel
