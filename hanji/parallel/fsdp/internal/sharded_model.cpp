#include "hanji/parallel/fsdp/internal/sharded_model.h"

#include <map>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/barrier.h"

namespace hanji::parallel {
namespace {

/// Parameters of one buffer: of a dtype, and what learns apart from what does not.
using Kinds = std::map<std::pair<bool, c10::ScalarType>, std::vector<int>>;

Kinds kinds_of(const std::vector<NamedParameter>& parameters, const std::vector<int>& indices) {
  Kinds kinds;
  for (const int index : indices) {
    const at::Tensor& parameter = parameters[index].tensor;
    kinds[{!parameter.requires_grad(), parameter.scalar_type()}].push_back(index);
  }
  return kinds;
}

std::vector<int64_t> sizes_of(const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> sizes;
  for (const auto& entry : parameters) sizes.push_back(entry.tensor.numel());
  return sizes;
}

}  // namespace

std::shared_ptr<ShardedModel> ShardedModel::create(Spec spec) {
  std::shared_ptr<ShardedModel> model(new ShardedModel(spec));
  model->start(spec);
  return model;
}

ShardedModel::ShardedModel(Spec& spec)
    : caller_(std::move(spec.caller)),
      group_(spec.gradients.group),
      residence_(spec.residence),
      precision_(spec.gradients.options.precision),
      num_secondary_(spec.secondary ? spec.secondary->size() : 0),
      reshards_after_forward_(spec.reshards_after_forward),
      reshards_(spec.reshards),
      holds_batch_(spec.holds_batch),
      max_in_flight_(spec.gradients.options.max_units_in_flight),
      offload_(spec.gradients.options.offload) {}

/// Room for all shards is there before the first parameter moves, or all is left as it was.
void ShardedModel::open_store(const Spec& spec) {
  if (!offload_) return;
  std::vector<int64_t> bytes;
  for (const UnitRequest& request : spec.units) {
    for (const auto& [kind, indices] : kinds_of(spec.parameters, request.parameters)) {
      const layout::Unit plan =
          layout::make_unit(indices, sizes_of(spec.parameters), group_.size());
      const int64_t own =
          plan.shards[group_.rank()].size() * static_cast<int64_t>(c10::elementSize(kind.second));
      if (offload_->parameters) bytes.push_back(own);
      if (offload_->gradients && !kind.first) bytes.push_back(own);
    }
  }
  std::vector<const comm::Group*> groups;
  if (spec.gradients.replicas) groups.push_back(&*spec.gradients.replicas);
  groups.push_back(&group_);
  store_ = std::make_shared<ShardStore>(caller_, *offload_, bytes, groups);
}

/// One flat buffer for each dtype, and one for what learns apart from what does not. Parameters move
/// there unit by unit, so that a rank never holds its module and all shards at a time.
void ShardedModel::add_flats(const Spec& spec, const UnitRequest& request, ModuleUnit& unit) {
  const std::vector<int64_t> sizes = sizes_of(spec.parameters);
  for (const auto& [kind, indices] : kinds_of(spec.parameters, request.parameters)) {
    std::vector<NamedParameter> own;
    for (const int index : indices) own.push_back(spec.parameters[index]);
    const Home home{residence_,
                    spec.device,
                    spec.initial ? &*spec.initial : nullptr,
                    dtypes_of(kind.second, precision_),
                    offload_ && offload_->parameters ? store_ : nullptr,
                    spec.secondary};
    unit.flats.push_back(flats_.size());
    unit_of_flat_.push_back(units_.size());
    flats_.push_back(std::make_unique<FlatUnit>(
        unit.name, layout::make_unit(indices, sizes, group_.size()), std::move(own), home, group_));
    flats_.back()->adopt(weak_from_this(), flats_.size() - 1);
    if (!flats_.back()->learns()) continue;
    learning_.push_back(flats_.back().get());
    unit_of_learning_.push_back(units_.size());
    ++unit.num_learning;
  }
}

void ShardedModel::start(Spec& spec) {
  open_store(spec);
  for (const UnitRequest& request : spec.units) {
    ModuleUnit unit{.name = request.name, .is_root = request.is_root};
    add_flats(spec, request, unit);
    if (unit.flats.empty() && !unit.is_root) continue;
    if (request.module != nullptr) by_module_[request.module] = units_.size();
    units_.push_back(std::move(unit));
  }
  if (spec.initial) spec.initial->materialise(spec.device);  // buffers, and what is in no unit
  spec.gradients.caller = caller_;
  if (offload_ && offload_->gradients) spec.gradients.store = store_;
  Gradients::Events events{[this] { check_untouched(); },
                           [this](size_t i) { on_unit_done(i); },
                           [this] { on_end_of_backward(); },
                           {}};
  gradients_ = std::make_unique<ShardGradients>(learning_, spec.gradients, std::move(events));
  comm::barrier(group_);
  reshard_all();
  note_versions();
  refuse_updates();
  if (spec.observes) observer_ = std::make_unique<UnitObserver>(*this);
}

std::optional<size_t> ShardedModel::find(const torch::nn::Module& module) const {
  const auto found = by_module_.find(&module);
  return found == by_module_.end() ? std::nullopt : std::optional(found->second);
}

void ShardedModel::unshard(ModuleUnit& unit) {
  if (pinned_) return;
  for (const size_t flat : unit.flats) flats_[flat]->begin_unshard();
  for (const size_t flat : unit.flats) flats_[flat]->unshard();
}

/// Ranks that own different numbers of grains gather alike if each does so once for all its grains.
void ShardedModel::reshard(ModuleUnit& unit) {
  if (pinned_ || holds_batch_) return;
  for (const size_t flat : unit.flats) flats_[flat]->reshard();
}

void ShardedModel::reshard_after_forward(ModuleUnit& unit) {
  if (pinned_ || holds_batch_) return;
  for (const size_t flat : unit.flats) flats_[flat]->reshard_after_forward();
}

void ShardedModel::reshard_all() {
  if (!reshards_) return;
  touched_.clear();
  const bool held = std::exchange(holds_batch_, false);
  for (ModuleUnit& unit : units_) reshard(unit);
  holds_batch_ = held;
}

}  // namespace hanji::parallel
