#include "hanji/parallel/fsdp/internal/sharded_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "hanji/base/status.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/new_tags.h"
#include "hanji/lens/observer.h"

namespace hanji::parallel {
namespace {

const char* const kOutsideStep =
    "the optimizer was about to change shards in a file outside of step(), where units are read "
    "ahead; call it within the handle's step()";

constexpr uint64_t kMeetings = 16;  ///< At least as many as there are.

OrderRule rule_of_units(const std::string& caller) {
  return {caller + ": the ranks compute different units, or in another order",
          "run the same units in the same order on every rank, also where the data decide what is "
          "computed"};
}

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

layout::Unit plan_of(const ShardedModel::Spec& spec, const std::vector<int>& indices) {
  std::vector<int64_t> sizes;
  for (const auto& entry : spec.parameters) sizes.push_back(entry.tensor.numel());
  return layout::make_unit(indices, sizes, spec.gradients.group.size());
}

bool is_mixed(const std::unique_ptr<FlatUnit>& flat) { return flat->part().is_mixed(); }

/// Whether a write to the module's parameters reaches the shards once, and stays.
bool takes_writes(const FlatUnit& flat) {
  return !flat.keeps_apart() && !flat.memory().is_shared();
}

}  // namespace

std::shared_ptr<ShardedModel> ShardedModel::create(Spec spec) {
  std::shared_ptr<ShardedModel> model(new ShardedModel(std::move(spec)));
  model->start();
  return model;
}

/// Room for all shards is there before the first parameter moves, or all is left as it was.
void ShardedModel::open_store() {
  const auto& offload = spec_.gradients.options.offload;
  if (!offload) return;
  std::vector<int64_t> bytes;
  for (const UnitRequest& request : spec_.units) {
    for (const auto& [kind, indices] : kinds_of(spec_.parameters, request.parameters)) {
      const int64_t own = plan_of(spec_, indices).shards[group().rank()].size() *
                          static_cast<int64_t>(c10::elementSize(kind.second));
      if (offload->parameters) bytes.push_back(own);
      if (offload->gradients && !kind.first) bytes.push_back(own);
    }
  }
  std::vector<const comm::Group*> groups;
  if (spec_.gradients.replicas) groups.push_back(&*spec_.gradients.replicas);
  groups.push_back(&group());
  store_ = std::make_shared<ShardStore>(spec_.caller, *offload, bytes, groups);
}

/// One flat buffer for each dtype, and one for what learns apart from what does not. Parameters move
/// there unit by unit, so that a rank never holds its module and all shards at a time.
void ShardedModel::add_flats(const UnitRequest& request) {
  const auto& offload = spec_.gradients.options.offload;
  const Home home{spec_.residence, offload && offload->parameters ? store_ : nullptr,
                  spec_.secondary, shards_together()};
  std::vector<FlatUnit*> flats;
  for (const auto& [kind, indices] : kinds_of(spec_.parameters, request.parameters)) {
    std::vector<NamedParameter> own;
    for (const int index : indices) own.push_back(spec_.parameters[index]);
    UnitPart part{request.name,
                  plan_of(spec_, indices),
                  std::move(own),
                  spec_.device,
                  dtypes_of(kind.second, spec_.rules.precision),
                  group(),
                  tags_ + kMeetings + flats_.size()};
    flats_.push_back(std::make_unique<FlatUnit>(std::move(part), home,
                                                spec_.initial ? &*spec_.initial : nullptr));
    flats.push_back(flats_.back().get());
    flats.back()->adopt(weak_from_this(), flats_.size() - 1);
    if (flats.back()->part().learns()) learning_.push_back(flats.back());
  }
  modules_->add(request, flats);
}

void ShardedModel::start() {
  spec_.rules.precision = spec_.gradients.options.precision;
  spec_.rules.max_in_flight = spec_.gradients.options.max_units_in_flight;
  spec_.rules.order = rule_of_units(spec_.caller);
  if (spec_.residence == Residence::kGathered) spec_.gradients.rule = spec_.rules.order;
  meeting_rule_ = rule_of_handle(spec_.caller);
  tags_ = comm::new_tags(group());
  open_store();
  modules_.emplace(weak_from_this(), spec_.caller, spec_.rules);
  for (const UnitRequest& request : spec_.units) add_flats(request);
  if (spec_.initial) spec_.initial->materialise(spec_.device);  // buffers, and what is in no unit
  ShardGradients::Setup setup = spec_.gradients;
  setup.caller = spec_.caller;
  setup.handle = weak_from_this();
  setup.watch = std::make_shared<ParameterWatch>(*spec_.module, spec_.caller,
                                                 ParameterWatch::Types::kMayChange);
  if (setup.options.offload && setup.options.offload->gradients) setup.store = store_;
  gradients_ = std::make_unique<ShardGradients>(learning_, std::move(setup), events());
  comm::barrier(group(), {.tag = tags_, .label = "start"});
  modules_->reshard_all();
  note_versions();
  refuse_updates();
  if (spec_.observes) observer_ = std::make_unique<UnitObserver>(*this);
  spec_.parameters.clear();
  spec_.initial.reset();
}

Gradients::Events ShardedModel::events() {
  return {[this] {
            check_placed();
            check_untouched();
          },
          [this](size_t unit) { modules_->on_gradients_of(*learning_[unit]); },
          [this] {
            const Gradients& engine = gradients_->engine();
            modules_->on_end_of_backward(engine.fold() != nullptr && engine.fold()->is_last(),
                                         engine.keeps_graph());
          },
          {}};
}

void ShardedModel::before_backward(const std::shared_ptr<UnitPass>& pass) {
  refuse_graph();
  modules_->check_unspent(*pass);
  gradients_->engine().arm();
  modules_->before_backward(pass);
}

/// Its own backward would read parameters after their units are resharded.
void ShardedModel::refuse_graph() const {
  if (!at::GradMode::is_enabled()) return;
  throw Error(base::unsupported(
      spec_.caller +
      ": gradients with create_graph, whose own backward would read parameters of units that are "
      "resharded by then; shard by shard_optimizer(), or use data_parallel(), which keep "
      "parameters "
      "whole"));
}

/// All ranks have done with the parameters as they are, or have written what they own.
void ShardedModel::meet(Meeting where) const {
  const bool is_shared = spec_.residence == Residence::kShared || shards_together();
  if (!is_shared) return;
  const char* labels[] = {"start",
                          "step(), before it",
                          "step(), after it",
                          "full_parameters",
                          "full_parameters",
                          "the end of full_parameters",
                          "the end of full_parameters"};
  under_rule(meeting_rule_, [&] {
    comm::barrier(group(), {.tag = tags_ + static_cast<uint64_t>(where),
                            .label = labels[static_cast<size_t>(where)]});
  });
}

void ShardedModel::step(const std::function<void()>& update) {
  check_placed();
  check_untouched();
  if (gradients_->engine().in_backward()) {
    throw Error(base::invalid_argument("step() inside a backward(); call it when that returns"));
  }
  const auto apart = [](const auto& flat) { return !takes_writes(*flat); };
  if (modules_->is_pinned() && std::ranges::any_of(flats_, apart)) {
    throw Error(base::invalid_argument(
        "step() while full_parameters() lives, whose end writes over the shards; end it first"));
  }
  gradients_->engine().refuse_changes();
  modules_->check_released();
  modules_->reshard_all();
  meet(Meeting::kBeforeUpdate);
  take_replaced();
  note_versions();
  update_shards(update);
  check_placed();
  check_unwritten();
  take_replaced();
  for (const FlatUnit* flat : learning_) flat->memory().begin_publish();
  for (const FlatUnit* flat : learning_) flat->memory().end_publish();
  meet(Meeting::kAfterUpdate);
  note_versions();
}

void ShardedModel::refuse_updates() const {
  if (store_) store_->file().refuse_updates(kOutsideStep);
}

/// What lies in the file may change meanwhile, and what was read ahead is old.
void ShardedModel::update_shards(const std::function<void()>& update) {
  if (!store_) return update();
  store_->drop_ahead();
  store_->file().refuse_updates({});
  update();
  refuse_updates();
  modules_->read_ahead();
}

void ShardedModel::check_in_memory(const std::string& caller, bool parameters,
                                   bool gradients) const {
  const auto& offload = spec_.gradients.options.offload;
  if (!offload) return;
  const bool no_parameters = parameters && offload->parameters;
  if (!no_parameters && !(gradients && offload->gradients)) return;
  throw Error(base::unsupported(
      caller + ": the " + (no_parameters ? "parameters" : "gradients") +
      " of this rank's shards lie in a file; update them by offloaded() of flat_parts(), read and "
      "write parameters while full_parameters() lives, gradients by for_each_gradient()"));
}

void ShardedModel::note_versions() {
  versions_.clear();
  whole_versions_.clear();
  for (const auto& flat : flats_) {
    for (const Leaf& leaf : flat->leaves())
      versions_.emplace_back(leaf.tensor, leaf.tensor._version());
    if (takes_writes(*flat)) continue;
    for (const auto& entry : flat->part().parameters) {
      whole_versions_.push_back(entry.tensor._version());
    }
  }
}

void ShardedModel::check_placed() const {
  std::string misfits, outside;
  const auto add = [](std::string& list, const char* between, const std::string& more) {
    if (!more.empty()) list += (list.empty() ? "" : between) + more;
  };
  for (const auto& flat : flats_) {
    if (flat->placed_leaves().any_replaced()) {
      add(misfits, "; ", flat->placed_leaves().misfits("the shard of "));
    }
    if (!flat->placed().any_replaced()) continue;
    add(misfits, "; ", flat->placed().misfits());
    const bool is_whole = !spec_.rules.reshards && flat->part().learns();
    if (!is_whole && !modules_->is_pinned()) add(outside, ", ", flat->placed().replaced());
  }
  if (!misfits.empty()) {
    throw Error(base::invalid_argument(
        spec_.caller + ": " + misfits +
        ": Module::to(), set_data() or torch::load() has replaced its memory by some whose values "
        "the shards cannot take; convert or load the module before " +
        spec_.caller + "()"));
  }
  if (outside.empty()) return;
  throw Error(base::invalid_argument(
      spec_.caller + ": the memory of parameters " + outside +
      " was replaced outside of full_parameters(), by torch::load(), vector_to_parameters(), "
      "set_data() or the like, so the shards have other values than the module; do it while "
      "full_parameters() lives, or before " +
      spec_.caller + "()"));
}

void ShardedModel::take_replaced() {
  const at::NoGradGuard no_grad;
  for (FlatUnit* flat : learning_) {
    flat->take_replaced_leaves();
    if (!spec_.rules.reshards) flat->take_replaced();
  }
}

void ShardedModel::check_unwritten() const {
  if (modules_->is_pinned()) return;
  size_t next = 0;
  for (const auto& flat : flats_) {
    if (takes_writes(*flat)) continue;
    for (size_t i = 0; i < flat->part().parameters.size(); ++i) {
      const auto& [name, parameter] = flat->part().parameters[i];
      const bool is_same = parameter._version() == whole_versions_[next++];
      if (is_same || flat->placed().is_replaced(i))
        continue;  // what lies elsewhere is nobody else's
      throw Error(base::invalid_argument(
          spec_.caller + ": this rank wrote to parameter " + name +
          " outside of full_parameters(), " +
          (flat->keeps_apart() ? "where the shards do not see it"
                               : "where all ranks of the host share its memory") +
          "; write while full_parameters() lives, which gives each rank a copy of its own"));
    }
  }
}

void ShardedModel::check_untouched() const {
  check_unwritten();
  for (const auto& [tensor, version] : versions_) {
    if (tensor._version() == version) continue;
    for (const auto& flat : flats_) {
      for (const Leaf& leaf : flat->leaves()) {
        if (!leaf.tensor.is_same(tensor)) continue;
        throw Error(base::invalid_argument(
            "this rank wrote to its shard of " + flat->part().parameters[leaf.position].name +
            " outside of step(), where other ranks may read it; call step(optimizer) instead of "
            "optimizer.step()"));
      }
    }
  }
}

std::string ShardedModel::why_foreign(const at::Tensor& tensor) const {
  for (const auto& flat : flats_) {
    for (const Leaf& leaf : flat->leaves()) {
      if (leaf.tensor.is_same(tensor)) return {};
    }
    for (const auto& [name, parameter] : flat->part().parameters) {
      if (parameter.is_same(tensor)) return "the whole parameter " + name;
    }
  }
  return "a tensor of another module";
}

void ShardedModel::begin_full_parameters() {
  check_placed();
  if (num_scopes_++ > 0) return;
  check_unwritten();
  meet(Meeting::kFull);
  take_replaced();
  for (size_t i = 0; i < flats_.size(); ++i) {
    FlatUnit& flat = *flats_[i];
    if (!is_mixed(flats_[i])) store_ ? flat.unshard() : flat.memory().begin_unshard();
    flat.begin_masters();
    if (i + 1 < flats_.size()) flats_[i + 1]->memory().read_ahead();
  }
  for (const auto& flat : flats_) {
    if (!is_mixed(flat)) flat->unshard();
  }
  modules_->set_pinned(true);
  meet(Meeting::kMasters);
  for (const auto& flat : flats_) flat->show_own();
}

/// Nobody writes to what others read until all have ended.
void ShardedModel::end_full_parameters() {
  const at::NoGradGuard no_grad;
  const lens::Pause pause;  // parameters are read here that are in no forward
  check_placed();
  if (--num_scopes_ > 0) return;
  meet(Meeting::kAllEnd);
  modules_->set_pinned(false);
  if (store_) store_->drop_ahead();
  for (const auto& flat : flats_) flat->write_back();
  modules_->reshard_all();
  meet(Meeting::kWrittenBack);
  note_versions();
}

}  // namespace hanji::parallel
