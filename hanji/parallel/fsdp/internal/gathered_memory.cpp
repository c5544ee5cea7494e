#include <ATen/core/grad_mode.h>

#include "hanji/comm/host_values.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/parallel/fsdp/internal/secondary_shard.h"
#include "hanji/parallel/fsdp/internal/unit_memory.h"

namespace hanji::parallel {
namespace {

class Gathered : public UnitMemory {
 public:
  Gathered(const UnitPart& part, const std::optional<comm::Group>& secondary)
      : UnitMemory(part), gather_(prepare_gather(part.dtypes.compute)) {
    if (secondary) secondary_.emplace(part, *secondary);
  }

  bool is_gathered() const override { return true; }

  void begin_unshard() override {
    if (whole_.defined()) return;
    const at::NoGradGuard no_grad;
    whole_ = empty_whole(part_.dtypes.compute, "unsharded units");
    gathering_ = has_secondary() ? secondary_->gather(whole_) : gather_shards();
  }

  void unshard() override {
    begin_unshard();
    gathering_.wait();
    gathering_ = {};
  }

  void reshard() override {
    if (secondary_) secondary_->drop();
    release();
  }

  void reshard_after_forward() override {
    if (secondary_ && whole_.defined() && !gathering_.begun()) secondary_->keep(whole_);
    release();
  }

 protected:
  bool has_secondary() const { return secondary_ && secondary_->is_kept(); }

  virtual comm::Work gather_shards() {
    if (!part_.is_mixed()) return gather_.start(whole_, shard_);
    return gather_.start(whole_, part_.own_of(whole_).copy_(shard_));  // rounded before it travels
  }

 private:
  /// What was gathered ahead of a use that did not come, too.
  void release() {
    if (gathering_.begun()) unshard();
    whole_.reset();
  }

  comm::Call gather_;
  std::optional<SecondaryShard> secondary_;
  comm::Work gathering_;
};

class GatheredFromMemory : public Gathered {
 public:
  GatheredFromMemory(const UnitPart& part, const Home& home) : Gathered(part, home.secondary) {
    if (home.shards_together) {
      all_shards_ = comm::shared_zeros({part.plan.flat.count}, part.dtypes.shard, 0, part.group,
                                       "parameters");
      shard_ = part.own_of(all_shards_);
    } else {
      shard_ = comm::zeros_on(part.device, {part.range().size()}, part.dtypes.shard, part.group,
                              "parameter shards");
    }
  }

  at::Tensor all_shards() const override { return all_shards_; }

 private:
  at::Tensor all_shards_;
};

/// The shard has memory while it is gathered, filled or written back.
class GatheredFromFile : public Gathered {
 public:
  GatheredFromFile(const UnitPart& part, const std::optional<comm::Group>& secondary,
                   std::shared_ptr<ShardStore> store)
      : Gathered(part, secondary),
        stored_(std::move(store), part.range().size(), part.dtypes.shard,
                "the shard of " + part.parameters[0].name +
                    " and others lies in a file; look at parameters while full_parameters() "
                    "lives, and update them by offloaded() of flat_parts()") {
    stored_.make();
    shard_ = stored_.tensor();
  }

  FilePlace shard_in_file() const override { return stored_.in_file(); }

  void end_fill() override { stored_.keep(); }

  void read_ahead() override {
    if (!has_secondary() && !whole_.defined()) stored_.read_ahead();
  }

  void unshard() override {
    Gathered::unshard();
    stored_.drop();
  }

  at::Tensor masters() override {
    stored_.bring();
    at::Tensor all = UnitMemory::masters();
    stored_.drop();
    return all;
  }

  void write_back(const at::Tensor& all) override {
    stored_.make();
    Gathered::write_back(all);
    stored_.keep();
  }

 protected:
  comm::Work gather_shards() override {
    stored_.bring();
    return Gathered::gather_shards();
  }

 private:
  StoredShard stored_;
};

}  // namespace

std::unique_ptr<UnitMemory> place_gathered(const UnitPart& part, const Home& home) {
  if (!home.store) return std::make_unique<GatheredFromMemory>(part, home);
  return std::make_unique<GatheredFromFile>(part, home.secondary, home.store);
}

}  // namespace hanji::parallel
