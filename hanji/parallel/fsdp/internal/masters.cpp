// While full_parameters() lives: the masters of all ranks, which the parameters are then.
#include <ATen/core/grad_mode.h>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/parallel/fsdp/internal/flat_unit.h"

namespace hanji::parallel {
namespace {

const char* const kCategory = "full parameters";

/// Keeps `memory` as long as somebody looks at `data`. Nobody's holder_of(): the parameter is an
/// ordinary one meanwhile.
c10::Storage storage_in(const at::Tensor& memory, void* data, int64_t bytes) {
  c10::DataPtr pointer(
      data, new at::Tensor(memory), [](void* kept) { delete static_cast<at::Tensor*>(kept); },
      memory.device());
  return {c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                std::move(pointer), nullptr, false)};
}

}  // namespace

void FlatUnit::begin_masters() {
  if (!is_mixed()) return;
  const at::NoGradGuard no_grad;
  const bool once = residence_ == Residence::kShared;
  masters_ = once ? comm::shared_zeros({plan_.flat.count}, dtype(), 0, group_, kCategory)
                  : empty_whole(dtype(), kCategory);
  if (stored_) stored_->bring();
  own_of(masters_).copy_(shard_);
  if (stored_) stored_->drop();
  if (!once) {
    comm::all_gather(masters_, own_of(masters_), counts_, group_, {.label = name_}).wait();
  }
}

void FlatUnit::show_masters() {
  if (!is_mixed()) return;
  auto* data = static_cast<std::byte*>(masters_.mutable_data_ptr());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const auto size = static_cast<int64_t>(masters_.element_size());
    hidden_.push_back(parameter.storage());
    reseat(parameter,
           storage_in(masters_, data + plan_.flat.offsets[i] * size, parameter.numel() * size),
           dtype());
  }
}

void FlatUnit::hide_masters() {
  shard_.copy_(own_of(masters_));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    c10::StorageImpl& shown = storage_of(parameter);
    shown.set_data_ptr_noswap({nullptr, device()});
    shown.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + parameters_[i].name +
        " had its own dtype while full_parameters() lived; what was computed with it then can be "
        "read, but not go backward");
    reseat(parameter, hidden_[i], dtypes_.compute);
  }
  hidden_.clear();
  if (residence_ == Residence::kReplicated) whole_.copy_(masters_);
  if (residence_ == Residence::kShared) begin_publish();
  masters_.reset();
}

}  // namespace hanji::parallel
