// Who may write to shards, or to whole parameters, and when others see it.
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/barrier.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

const char* const kOutsideStep =
    "the optimizer was about to change shards in a file outside of step(), where units are read "
    "ahead; call it within the handle's step()";

}  // namespace

/// All ranks have done with the parameters as they are, or have written what they own.
void ShardedModel::meet() const {
  if (residence_ == Residence::kShared) comm::barrier(group_);
}

void ShardedModel::step(const std::function<void()>& update) {
  if (gradients_->engine().in_backward()) {
    throw Error(base::invalid_argument("step() inside a backward(); call it when that returns"));
  }
  const auto apart = [](const auto& flat) { return flat->keeps_apart(); };
  if (pinned_ && std::ranges::any_of(flats_, apart)) {
    throw Error(base::invalid_argument(
        "step() while full_parameters() lives, whose end writes over the shards; end it first"));
  }
  check_untouched();
  reshard_all();
  meet();
  update_shards(update);
  for (FlatUnit* flat : learning_) flat->begin_publish();
  for (const auto& flat : flats_) flat->wait_unshard();
  meet();
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
  // The next forward() begins as the one before did.
  for (size_t i = 0; i < std::min<size_t>(order_.size(), 2); ++i) {
    for (const size_t flat : units_[order_[i]].flats) flats_[flat]->read_ahead();
  }
}

void ShardedModel::check_in_memory(const std::string& caller, bool parameters,
                                   bool gradients) const {
  if (!offload_) return;
  const bool no_parameters = parameters && offload_->parameters;
  if (!no_parameters && !(gradients && offload_->gradients)) return;
  throw Error(base::unsupported(
      caller + ": the " + (no_parameters ? "parameters" : "gradients") +
      " of this rank's shards lie in a file; update them by offloaded() of flat_parts(), read and "
      "write parameters while full_parameters() lives, gradients by for_each_gradient()"));
}

void ShardedModel::note_versions() {
  versions_.clear();
  for (const auto& flat : flats_) {
    for (const Leaf& leaf : flat->leaves())
      versions_.emplace_back(leaf.tensor, leaf.tensor._version());
  }
}

void ShardedModel::check_untouched() const {
  for (const auto& [tensor, version] : versions_) {
    if (tensor._version() == version) continue;
    for (const auto& flat : flats_) {
      for (const Leaf& leaf : flat->leaves()) {
        if (!leaf.tensor.is_same(tensor)) continue;
        throw Error(base::invalid_argument(
            "this rank wrote to its shard of " + flat->parameters()[leaf.position].name +
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
    for (const auto& [name, parameter] : flat->parameters()) {
      if (parameter.is_same(tensor)) return "the whole parameter " + name;
    }
  }
  return "a tensor of another module";
}

void ShardedModel::begin_full_parameters() {
  meet();
  for (size_t i = 0; i < flats_.size(); ++i) {
    FlatUnit& flat = *flats_[i];
    if (!flat.is_mixed()) store_ ? flat.unshard() : flat.begin_unshard();
    flat.begin_masters();
    if (i + 1 < flats_.size()) flats_[i + 1]->read_ahead();
  }
  for (const auto& flat : flats_) {
    if (!flat->is_mixed()) flat->unshard();
  }
  pinned_ = true;
  if (std::ranges::none_of(flats_, [](const auto& flat) { return flat->is_mixed(); })) return;
  meet();
  for (const auto& flat : flats_) flat->show_masters();
}

void ShardedModel::end_full_parameters() {
  const at::NoGradGuard no_grad;
  pinned_ = false;
  if (store_) store_->drop_ahead();
  for (const auto& flat : flats_) flat->write_back();
  reshard_all();
  meet();
  note_versions();
}

}  // namespace hanji::parallel
