// When the parameters of a unit are whole, and what comes of what was written to them.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "hanji/comm/all_gather.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/flat_unit.h"

namespace hanji::parallel {

FlatUnit::~FlatUnit() {
  if (unsharded_ || residence_ == Residence::kGathered) return;
  for (const auto& entry : parameters_) storage_of(entry.tensor).clear_data_ptr_access_error_msg_();
}

void FlatUnit::point_at(const at::Tensor& whole) {
  auto* data = static_cast<std::byte*>(whole.mutable_data_ptr());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    c10::StorageImpl& storage = storage_of(parameters_[i].tensor);
    auto* begin = data + plan_.flat.offsets[i] * static_cast<int64_t>(whole.element_size());
    storage.set_data_ptr_noswap(held(begin, whole));
  }
}

at::Tensor FlatUnit::empty_whole(c10::ScalarType dtype, const char* category) const {
  if (!device().is_cpu()) {
    return at::empty({plan_.flat.count}, at::TensorOptions(dtype).device(device()));
  }
  return group_.heap().empty({plan_.flat.count}, dtype, category);
}

void FlatUnit::read_ahead() {
  const bool is_secondary = secondary_ && secondary_->is_kept();
  if (stored_ && !is_secondary && !unsharded_ && !gathering_.begun()) stored_->read_ahead();
}

void FlatUnit::begin_unshard() {
  if (unsharded_ || gathering_.begun() || residence_ != Residence::kGathered) return;
  const at::NoGradGuard no_grad;
  whole_ = empty_whole(dtypes_.compute, "unsharded units");
  if (secondary_ && secondary_->is_kept()) {
    gathering_ = secondary_->gather(whole_, name_);
    return;
  }
  if (stored_) stored_->bring();
  // Rounded before it travels.
  const at::Tensor own = is_mixed() ? own_of(whole_).copy_(shard_) : shard_;
  gathering_ = comm::all_gather(whole_, own, counts_, group_, {.label = name_});
}

void FlatUnit::unshard() {
  if (unsharded_) return;
  if (residence_ == Residence::kGathered) {
    begin_unshard();
    wait_unshard();
    point_at(whole_);
  }
  for (const auto& entry : parameters_) storage_of(entry.tensor).clear_data_ptr_access_error_msg_();
  unsharded_ = true;
}

void FlatUnit::reshard_after_forward() {
  if (secondary_ && unsharded_) secondary_->keep(whole_);
  hide();
}

void FlatUnit::reshard() {
  if (secondary_) secondary_->drop();
  hide();
}

void FlatUnit::hide() {
  if (gathering_.begun()) {  // ahead of a use that did not come
    wait_unshard();
    whole_.reset();
  }
  if (!unsharded_) return;
  for (const auto& [name, parameter] : parameters_) {
    c10::StorageImpl& storage = storage_of(parameter);
    if (residence_ == Residence::kGathered) {
      storage.set_data_ptr_noswap(held(nullptr, {}));
    }
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + name + " is sharded, and its unit" + (name_.empty() ? "" : " " + name_) +
        " is not being computed; call the unit by hanji::unit(module)(...), or look at parameters "
        "while full_parameters() lives; make the optimizer from the handle's parameters()");
  }
  if (residence_ == Residence::kGathered) whole_.reset();
  unsharded_ = false;
}

void FlatUnit::wait_unshard() {
  gathering_.wait();
  gathering_ = {};
  if (stored_) stored_->drop();
}

void FlatUnit::begin_publish() {
  if (residence_ == Residence::kGathered) return;
  const at::NoGradGuard no_grad;
  const at::Tensor own = own_of(whole_);
  if (is_mixed()) own.copy_(shard_);
  if (residence_ != Residence::kReplicated) return;
  gathering_ = comm::all_gather(whole_, own, counts_, group_, {.label = name_});
}

void FlatUnit::write_back() {
  if (stored_) stored_->make();
  if (is_mixed()) {
    hide_masters();
  } else if (residence_ == Residence::kGathered) {
    shard_.copy_(own_of(whole_));
  }
  if (stored_) stored_->keep();
}

std::vector<at::Tensor> FlatUnit::whole_of(const std::vector<at::Tensor>& by_leaf) const {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(dtype()).device(device());
  const at::Tensor mine = at::zeros({range().size()}, options);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    mine.narrow(0, leaves_[i].offset, leaves_[i].elements.size()).copy_(by_leaf[i].reshape({-1}));
  }
  at::Tensor all = at::empty({plan_.flat.count}, options);
  comm::all_gather(all, mine, counts_, group_, {.label = name_}).wait();
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    whole.push_back(alias(all, plan_.flat.offsets[i], parameters_[i].tensor.sizes()).clone());
  }
  return whole;
}

}  // namespace hanji::parallel
