#include "hanji/parallel/fsdp/internal/flat_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

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

/// What a parameter's elements lie in.
c10::StorageImpl& storage_of(const at::Tensor& parameter) {
  return *parameter.storage().unsafeGetStorageImpl();
}

/// Where parameter `i` begins in a whole unit.
void* begin_of(const at::Tensor& whole, const UnitPart& part, size_t i) {
  return static_cast<std::byte*>(whole.mutable_data_ptr()) +
         part.plan.flat.offsets[i] * static_cast<int64_t>(whole.element_size());
}

c10::Storage storage_at(c10::DataPtr data, const at::Tensor& parameter, c10::ScalarType dtype) {
  const int64_t bytes = parameter.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  return {c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                std::move(data), nullptr, false)};
}

/// Gives `parameter` other memory, and a dtype; as Tensor::set_data() it forgets where gradients of
/// another dtype went.
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

void allow_reads(const UnitPart& part) {
  for (const auto& entry : part.parameters) {
    storage_of(entry.tensor).clear_data_ptr_access_error_msg_();
  }
}

}  // namespace

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

FlatUnit::FlatUnit(UnitPart part, const Home& home, const lens::InitialValues* initial)
    : part_(std::move(part)) {
  const at::NoGradGuard no_grad;
  memory_ = place(part_, home);
  make_leaves(initial);
  memory_->end_fill();
}

FlatUnit::~FlatUnit() {
  if (!unsharded_ && !memory_->is_gathered()) allow_reads(part_);
}

void FlatUnit::make_leaves(const lens::InitialValues* initial) {
  for (const layout::Piece& piece : layout::pieces(part_.plan, part_.group.rank())) {
    const at::Tensor& parameter = part_.parameters[piece.position].tensor;
    Leaf leaf{
        static_cast<size_t>(piece.position), piece.elements, piece.flat - part_.range().begin, {}};
    leaf.tensor = alias(memory_->shard(), leaf.offset, leaf_sizes(parameter, piece.elements));
    fill(leaf, initial);
    leaf.tensor.set_requires_grad(parameter.requires_grad());
    leaves_.push_back(std::move(leaf));
  }
}

void FlatUnit::fill(const Leaf& leaf, const lens::InitialValues* initial) const {
  const at::Tensor& parameter = part_.parameters[leaf.position].tensor;
  const int64_t count = leaf.elements.size();
  at::Tensor target = memory_->shard().narrow(0, leaf.offset, count);
  if (initial != nullptr) return initial->write(initial->find(parameter), leaf.elements, target);
  target.copy_(parameter.detach().contiguous().view({-1}).narrow(0, leaf.elements.begin, count));
}

std::vector<at::Tensor> FlatUnit::by_leaf(const at::Tensor& shard) const {
  std::vector<at::Tensor> parts;
  for (const Leaf& leaf : leaves_) parts.push_back(alias(shard, leaf.offset, leaf.tensor.sizes()));
  return parts;
}

c10::DataPtr FlatUnit::held(void* data, at::Tensor memory) const {
  return {data, new Holder{std::move(memory), model_, index_}, &drop_holder, part_.device};
}

void FlatUnit::adopt(const std::weak_ptr<ShardedModel>& model, size_t index) {
  model_ = model;
  index_ = index;
  for (const auto& [name, parameter] : part_.parameters) {
    if (parameter.is_meta()) {  // every handle to it sees that it is none any more
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const auto real = at::empty({0}, at::TensorOptions(part_.dtypes.shard).device(part_.device));
      parameter.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
      parameter.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    }
    reseat(parameter, storage_at(held(nullptr, {}), parameter, part_.dtypes.compute),
           part_.dtypes.compute);
  }
  unsharded_ = true;
  if (memory_->is_gathered()) return reshard();
  point_at_whole();
}

void FlatUnit::point_at_whole() {
  const at::Tensor& whole = memory_->whole();
  for (size_t i = 0; i < part_.parameters.size(); ++i) {
    storage_of(part_.parameters[i].tensor)
        .set_data_ptr_noswap(held(begin_of(whole, part_, i), whole));
  }
}

void FlatUnit::unshard() {
  if (unsharded_) return;
  memory_->unshard();
  if (memory_->is_gathered()) point_at_whole();
  allow_reads(part_);
  unsharded_ = true;
}

void FlatUnit::reshard() {
  refuse_reads();
  memory_->reshard();
}

void FlatUnit::reshard_after_forward() {
  refuse_reads();
  memory_->reshard_after_forward();
}

void FlatUnit::refuse_reads() {
  if (!std::exchange(unsharded_, false)) return;
  for (const auto& [name, parameter] : part_.parameters) {
    c10::StorageImpl& storage = storage_of(parameter);
    if (memory_->is_gathered()) storage.set_data_ptr_noswap(held(nullptr, {}));
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + name + " is sharded, and its unit" +
        (part_.name.empty() ? "" : " " + part_.name) +
        " is not being computed; call the unit by hanji::unit(module)(...), or look at parameters "
        "while full_parameters() lives; make the optimizer from the handle's parameters()");
  }
}

void FlatUnit::begin_masters() {
  const at::NoGradGuard no_grad;
  if (part_.is_mixed()) masters_ = memory_->masters();
}

/// Nobody's holder_of(): the parameter is an ordinary one meanwhile, whose storage keeps the memory
/// as long as somebody looks at it.
void FlatUnit::show_masters() {
  if (!part_.is_mixed()) return;
  for (size_t i = 0; i < part_.parameters.size(); ++i) {
    const at::Tensor& parameter = part_.parameters[i].tensor;
    c10::DataPtr data(
        begin_of(masters_, part_, i), new at::Tensor(masters_),
        [](void* kept) { delete static_cast<at::Tensor*>(kept); }, part_.device);
    hidden_.push_back(parameter.storage());
    reseat(parameter, storage_at(std::move(data), parameter, part_.dtypes.shard),
           part_.dtypes.shard);
  }
}

void FlatUnit::write_back() {
  memory_->write_back(masters_);
  if (part_.is_mixed()) hide_masters();
}

void FlatUnit::hide_masters() {
  for (size_t i = 0; i < part_.parameters.size(); ++i) {
    const auto& [name, parameter] = part_.parameters[i];
    c10::StorageImpl& shown = storage_of(parameter);
    shown.set_data_ptr_noswap({nullptr, part_.device});
    shown.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + name +
        " had its own dtype while full_parameters() lived; what was computed with it then can be "
        "read, but not go backward");
    reseat(parameter, hidden_[i], part_.dtypes.compute);
  }
  hidden_.clear();
  masters_.reset();
}

}  // namespace hanji::parallel
