#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/prepare.h"
#include "hanji/layout/unit.h"
#include "hanji/parallel/fsdp/internal/precision.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// What a unit is, on one rank.
struct UnitPart {
  std::string name;  ///< Of the module; empty: the root.
  layout::Unit plan;
  std::vector<NamedParameter> parameters;
  c10::Device device;
  UnitDtypes dtypes;
  comm::Group group;  ///< Who has the shards.
  uint64_t tag = 0;   ///< Tag of calls for this unit that are not prepared.

  std::string_view label() const { return name.empty() ? "the root unit" : name; }
  layout::Range range() const { return plan.shards[group.rank()]; }
  bool learns() const { return parameters[0].tensor.requires_grad(); }
  /// Whole parameters are rounded copies of the shards.
  bool is_mixed() const { return dtypes.compute != dtypes.shard; }
  /// This rank's elements of a whole unit.
  at::Tensor own_of(const at::Tensor& whole) const {
    return whole.narrow(0, range().begin, range().size());
  }
};

/// Where the whole parameters of a unit lie.
enum class Residence : uint8_t {
  kShared,      ///< Once on the host, in the heap: every rank writes its shard there.
  kReplicated,  ///< On every rank: unsharded again after each step.
  kGathered,    ///< On every rank while it computes with them, else only the shards.
};

/// The memory of one unit: its whole parameters, as they are computed with, and this rank's shard of
/// them. The shard is memory of its own where whole parameters have another dtype or are gathered.
///
/// Order   ranks call members but for the accessors in the same order: some are collectives.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;

  /// This rank's elements.
  const at::Tensor& shard() const { return shard_; }
  /// Where they are between uses; nowhere: in memory.
  virtual FilePlace shard_in_file() const { return {}; }
  /// All elements; undefined while they have no memory.
  const at::Tensor& whole() const { return whole_; }
  /// All shards where they lie side by side, for ranks of the host to read; undefined: they do not.
  virtual at::Tensor all_shards() const { return {}; }
  /// Whole parameters have memory only from begin_unshard() to reshard().
  virtual bool is_gathered() const { return false; }
  /// Whole parameters are memory that other ranks read and write too.
  virtual bool is_shared() const { return false; }
  /// The values of whole() or of masters(), which is read while nobody writes it, in memory that only this
  /// rank writes: the same tensor where no other rank has it.
  at::Tensor own_view(const at::Tensor& all) const;

  /// The shard holds its first values.
  virtual void end_fill();
  /// Begins to read the shard from its file, if it will be gathered.
  virtual void read_ahead() {}
  virtual void begin_unshard() {}
  /// After it whole() can be computed with.
  virtual void unshard() {}
  virtual void reshard() {}
  /// The same between forward and backward, which will gather the secondary shards if there are any.
  virtual void reshard_after_forward() { reshard(); }
  /// What was written to the shard reaches whole parameters that are always there.
  virtual void begin_publish() {}
  virtual void end_publish() {}

  /// Mixed: the shards of all ranks in one tensor; of one on the host, after all ranks have called.
  virtual at::Tensor masters();
  /// This rank's elements of `all`, what own_view() gave, become the shard, and whole() is that of all
  /// ranks' shards.
  virtual void write_back(const at::Tensor& all);

 protected:
  explicit UnitMemory(const UnitPart& part) : part_(part) {}
  at::Tensor empty_whole(c10::ScalarType dtype, const char* category) const;
  /// Of a whole unit in this dtype from the shards of all ranks.
  comm::Call prepare_gather(c10::ScalarType dtype) const;

  const UnitPart& part_;
  at::Tensor whole_;
  at::Tensor shard_;
};

/// Who needs what of a unit's memory.
struct Home {
  Residence residence = Residence::kShared;
  /// Gathered: where the shards are; null: in memory.
  std::shared_ptr<ShardStore> store = nullptr;
  /// Gathered: who a unit is resharded over after forward.
  std::optional<comm::Group> secondary = {};
  /// Gathered, in memory: shards lie side by side in the memory of the group's first rank.
  bool shards_together = false;
};
/// `part` outlives the result. A collective.
std::unique_ptr<UnitMemory> place(const UnitPart& part, const Home& home);

/// Those that are whole only while they are computed with.
std::unique_ptr<UnitMemory> place_gathered(const UnitPart& part, const Home& home);

}  // namespace hanji::parallel
