#include "hanji/parallel/fsdp/internal/flat_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

#include "hanji/comm/host_values.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

/// Behind a parameter's data pointer: keeps the memory, and tells who shards it.
struct Holder {
  at::Tensor memory;
  std::weak_ptr<ShardedModel> model;
  size_t unit = 0;
};

void drop_holder(void* holder) { delete static_cast<Holder*>(holder); }

/// A whole parameter keeps its sizes; of a matrix that is cut, a piece is one row, so that rules by
/// dimension (no weight decay of vectors) still hold.
std::vector<int64_t> leaf_sizes(const at::Tensor& parameter, const layout::Range& elements) {
  if (elements.size() == parameter.numel()) return parameter.sizes().vec();
  if (parameter.dim() >= 2) return {1, elements.size()};
  return {elements.size()};
}

}  // namespace

c10::StorageImpl& storage_of(const at::Tensor& parameter) {
  return *parameter.storage().unsafeGetStorageImpl();
}

at::Tensor piece_of(const at::Tensor& whole, const Leaf& leaf) {
  return whole.detach()
      .reshape({-1})
      .narrow(0, leaf.elements.begin, leaf.elements.size())
      .reshape(leaf.tensor.sizes())
      .clone();
}

Held holder_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.has_storage()) return {};
  auto& data = storage_of(parameter)._mutable_data_ptr_no_checks();
  if (data.get_deleter() != &drop_holder) return {};
  const auto* holder = static_cast<const Holder*>(data.get_context());
  return {holder->model.lock(), holder->unit};
}

void reseat(const at::Tensor& parameter, c10::Storage storage, c10::ScalarType dtype) {
  const bool converts = parameter.scalar_type() != dtype;
  const std::vector<int64_t> sizes = parameter.sizes().vec();
  auto* tensor = parameter.unsafeGetTensorImpl();
  tensor->set_storage_and_dtype(std::move(storage), c10::scalarTypeToTypeMeta(dtype));
  tensor->set_sizes_contiguous(sizes);
  tensor->set_storage_offset(0);
  auto* meta = torch::autograd::impl::get_autograd_meta(parameter);
  if (!converts || meta == nullptr) return;
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  meta->grad_accumulator_.reset();
}

c10::DataPtr FlatUnit::held(void* data, at::Tensor memory) const {
  return {data, new Holder{std::move(memory), model_, index_}, &drop_holder, device()};
}

FlatUnit::FlatUnit(std::string name, layout::Unit plan, std::vector<NamedParameter> parameters,
                   const Home& home, const comm::Group& group)
    : name_(std::move(name)),
      plan_(std::move(plan)),
      parameters_(std::move(parameters)),
      residence_(home.residence),
      device_(home.device),
      dtypes_(home.dtypes),
      group_(group),
      counts_(layout::shard_counts(plan_)) {
  const at::NoGradGuard no_grad;
  if (residence_ == Residence::kShared) {
    whole_ = comm::shared_zeros({plan_.flat.count}, dtypes_.compute, 0, group_, "parameters");
  } else if (residence_ == Residence::kReplicated) {
    whole_ = comm::zeros_on(device(), {plan_.flat.count}, dtypes_.compute, group_, "parameters");
  }
  if (home.store) {
    place_in_file(home.store);
  } else {
    shard_ = keeps_apart()
                 ? comm::zeros_on(device(), {range().size()}, dtype(), group_, "parameter shards")
                 : own_of(whole_);
  }
  if (home.secondary && residence_ == Residence::kGathered)
    secondary_.emplace(plan_, *home.secondary);
  make_leaves(home.initial);
  if (stored_) stored_->keep();
  if (residence_ == Residence::kShared) begin_publish();
  if (residence_ == Residence::kReplicated) fill_replicas(home.initial);
}

at::Tensor FlatUnit::own_of(const at::Tensor& whole) const {
  return whole.narrow(0, range().begin, range().size());
}

void FlatUnit::place_in_file(std::shared_ptr<ShardStore> store) {
  stored_.emplace(std::move(store), range().size(), dtype(),
                  "the shard of " + parameters_[0].name +
                      " and others lies in a file; look at parameters while full_parameters() "
                      "lives, and update them by offloaded() of flat_parts()");
  stored_->make();
  shard_ = stored_->tensor();
}

void FlatUnit::make_leaves(const lens::InitialValues* initial) {
  for (const layout::Piece& piece : layout::pieces(plan_, group_.rank())) {
    const at::Tensor& parameter = parameters_[piece.position].tensor;
    Leaf leaf{static_cast<size_t>(piece.position), piece.elements, piece.flat - range().begin, {}};
    leaf.tensor = alias(shard_, leaf.offset, leaf_sizes(parameter, piece.elements));
    fill(leaf, initial);
    leaf.tensor.set_requires_grad(parameter.requires_grad());
    leaves_.push_back(std::move(leaf));
  }
}

std::vector<at::Tensor> FlatUnit::by_leaf(const at::Tensor& shard) const {
  std::vector<at::Tensor> parts;
  for (const Leaf& leaf : leaves_) parts.push_back(alias(shard, leaf.offset, leaf.tensor.sizes()));
  return parts;
}

void FlatUnit::fill(const Leaf& leaf, const lens::InitialValues* initial) const {
  const at::Tensor& parameter = parameters_[leaf.position].tensor;
  const int64_t count = leaf.elements.size();
  at::Tensor target = shard_.narrow(0, leaf.offset, count);
  if (initial != nullptr) return initial->write(initial->find(parameter), leaf.elements, target);
  target.copy_(parameter.detach().contiguous().view({-1}).narrow(0, leaf.elements.begin, count));
}

/// Values that have to be computed are so once, by the rank that owns them.
void FlatUnit::fill_replicas(const lens::InitialValues* initial) {
  if (initial != nullptr) {
    begin_publish();
    return wait_unshard();
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    alias(whole_, plan_.flat.offsets[i], parameter.sizes()).copy_(parameter);
  }
}

void FlatUnit::adopt(const std::weak_ptr<ShardedModel>& model, size_t index) {
  model_ = model;
  index_ = index;
  for (const auto& [name, parameter] : parameters_) {
    const int64_t bytes = parameter.numel() * c10::elementSize(dtypes_.compute);
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                         held(nullptr, {}), nullptr, false);
    if (parameter.is_meta()) {  // every handle to it sees that it is none any more
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const auto real = at::empty({0}, at::TensorOptions(dtype()).device(device_));
      parameter.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
      parameter.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    }
    reseat(parameter, c10::Storage(std::move(storage)), dtypes_.compute);
  }
  if (whole_.defined()) {
    point_at(whole_);
    unsharded_ = true;
  } else {
    unsharded_ = true;
    reshard();
  }
}

}  // namespace hanji::parallel
