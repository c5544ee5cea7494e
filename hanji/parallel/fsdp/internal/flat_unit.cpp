#include "hanji/parallel/fsdp/internal/flat_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"
#include "hanji/parallel/gradients/gradient_hook.h"
#include "hanji/parallel/without_memory.h"

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
  auto& data = parameter.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &drop_holder) return {};
  const auto* holder = static_cast<const Holder*>(data.get_context());
  return {holder->model.lock(), holder->unit};
}

std::shared_ptr<ShardedModel> holder_of_replaced(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.requires_grad() || !parameter.is_leaf()) return nullptr;
  return std::static_pointer_cast<ShardedModel>(handle_of(parameter));
}

FlatUnit::FlatUnit(UnitPart part, const Home& home, const lens::InitialValues* initial)
    : part_(std::move(part)) {
  const at::NoGradGuard no_grad;
  memory_ = place(part_, home);
  make_leaves(initial);
  memory_->end_fill();
}

FlatUnit::~FlatUnit() {
  if (memory_->is_gathered()) return;
  if (memory_->is_shared()) leave_shared_memory();
  if (!unsharded_) allow_reads();
}

/// The host's copy belongs to nobody afterwards: parameters and shards that are still in use are views of
/// it, on which each rank sees its own writes only.
void FlatUnit::leave_shared_memory() {
  const at::NoGradGuard no_grad;
  at::Tensor own;
  try {
    own = memory_->own_view(memory_->whole());
  } catch (const Error&) {
    own = memory_->whole().clone();  // no addresses for a view
  }
  if (!shown_.defined() && !masters_.defined()) point_at(own);
  if (part_.is_mixed()) return;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (placed_leaves_.is_replaced(i)) continue;
    const Leaf& leaf = leaves_[i];
    const at::Tensor moved = alias(own, part_.range().begin + leaf.offset, leaf.tensor.sizes());
    leaf.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(moved.storage());
    leaf.tensor.unsafeGetTensorImpl()->set_storage_offset(moved.storage_offset());
  }
}

void FlatUnit::make_leaves(const lens::InitialValues* initial) {
  for (const layout::Piece& piece : layout::pieces(part_.plan, part_.group.rank())) {
    const at::Tensor& parameter = part_.parameters[piece.position].tensor;
    Leaf leaf{
        static_cast<size_t>(piece.position), piece.elements, piece.flat - part_.range().begin, {}};
    leaf.tensor = alias(memory_->shard(), leaf.offset, leaf_sizes(parameter, piece.elements));
    fill(leaf, initial);
    leaf.tensor.set_requires_grad(parameter.requires_grad());
    placed_leaves_.add({part_.parameters[piece.position].name, leaf.tensor});
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
  for (const NamedParameter& entry : part_.parameters) {
    const at::Tensor& parameter = entry.tensor;
    if (parameter.is_meta()) {  // every handle to it sees that it is none any more
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const auto real = at::empty({0}, at::TensorOptions(part_.dtypes.shard).device(part_.device));
      parameter.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
      parameter.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    }
    placed_.add(entry);
    placed_.move(placed_.size() - 1, storage_at(held(nullptr, {}), parameter, part_.dtypes.compute),
                 part_.dtypes.compute);
  }
  unsharded_ = true;
  if (memory_->is_gathered()) return reshard();
  point_at(memory_->whole());
}

void FlatUnit::point_at(const at::Tensor& whole) {
  for (size_t i = 0; i < placed_.size(); ++i) {
    placed_.storage(i).set_data_ptr_noswap(held(begin_of(whole, part_, i), whole));
  }
}

void FlatUnit::allow_reads() const {
  for (size_t i = 0; i < placed_.size(); ++i) allow_access(placed_.storage(i));
}

void FlatUnit::unshard() {
  if (placed_.any_replaced()) {
    if (const auto model = model_.lock()) model->check_placed();
  }
  if (unsharded_) return;
  memory_->unshard();
  if (memory_->is_gathered()) point_at(memory_->whole());
  allow_reads();
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
  for (size_t i = 0; i < placed_.size(); ++i) {
    c10::StorageImpl& storage = placed_.storage(i);
    if (memory_->is_gathered()) storage.set_data_ptr_noswap(held(nullptr, {}));
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + part_.parameters[i].name + " is sharded, and its unit" +
        (part_.name.empty() ? "" : " " + part_.name) +
        " is not being computed; call the unit by hanji::unit(module)(...), or look at parameters "
        "while full_parameters() lives; make the optimizer from the handle's parameters()");
  }
}

void FlatUnit::begin_masters() {
  const at::NoGradGuard no_grad;
  if (part_.is_mixed()) masters_ = memory_->masters();
}

void FlatUnit::show_own() {
  if (part_.is_mixed()) return show_masters();
  if (!memory_->is_shared()) return;
  shown_ = memory_->own_view(memory_->whole());
  point_at(shown_);
}

/// Nobody's holder_of(): the parameter is an ordinary one meanwhile, whose storage keeps the memory
/// as long as somebody looks at it.
void FlatUnit::show_masters() {
  shown_ = memory_->own_view(masters_);
  for (size_t i = 0; i < placed_.size(); ++i) {
    c10::DataPtr data(
        begin_of(shown_, part_, i), new at::Tensor(shown_),
        [](void* kept) { delete static_cast<at::Tensor*>(kept); }, part_.device);
    auto storage = storage_at(std::move(data), part_.parameters[i].tensor, part_.dtypes.shard);
    hidden_.push_back(placed_.move(i, std::move(storage), part_.dtypes.shard));
  }
}

void FlatUnit::write_back() {
  const at::Tensor written = shown_.defined() ? shown_ : memory_->whole();
  take_replaced(part_.own_of(written));
  memory_->write_back(written);
  if (part_.is_mixed()) {
    hide_masters();
  } else if (shown_.defined()) {
    point_at(memory_->whole());
  }
  shown_.reset();
}

void FlatUnit::take_replaced(const at::Tensor& own) {
  if (!placed_.any_replaced()) return;
  for (const Leaf& leaf : leaves_) {
    if (!placed_.is_replaced(leaf.position)) continue;
    const auto& [begin, end] = leaf.elements;
    const at::Tensor values = part_.parameters[leaf.position].tensor.detach().reshape({-1});
    own.narrow(0, leaf.offset, end - begin).copy_(values.narrow(0, begin, end - begin).clone());
  }
  for (size_t i = 0; i < placed_.size(); ++i) {
    if (placed_.is_replaced(i)) placed_.put_back(i);
  }
}

/// All of them where all are this rank's to write: what the others take is the same.
void FlatUnit::take_replaced() {
  if (!placed_.any_replaced()) return;
  for (size_t i = 0; !memory_->is_shared() && i < placed_.size(); ++i) {
    if (!placed_.is_replaced(i)) continue;
    const at::Tensor& parameter = part_.parameters[i].tensor;
    memory_->whole()
        .narrow(0, part_.plan.flat.offsets[i], parameter.numel())
        .copy_(parameter.detach().reshape({-1}).clone());
  }
  take_replaced(memory_->shard());
}

void FlatUnit::take_replaced_leaves() {
  if (!placed_leaves_.any_replaced()) return;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (!placed_leaves_.is_replaced(i)) continue;
    const at::Tensor values = leaves_[i].tensor.detach().clone();
    placed_leaves_.put_back(i);
    leaves_[i].tensor.detach().copy_(values);
  }
}

void FlatUnit::hide_masters() {
  for (size_t i = 0; i < placed_.size(); ++i) {
    c10::StorageImpl& shown = placed_.storage(i);
    shown.set_data_ptr_noswap({nullptr, part_.device});
    shown.release_data_and_set_meta_custom_data_ptr_error_msg_(
        "parameter " + part_.parameters[i].name +
        " had its own dtype while full_parameters() lived; what was computed with it then can be "
        "read, but not go backward");
    placed_.move(i, std::move(hidden_[i]), part_.dtypes.compute);
  }
  hidden_.clear();
  masters_.reset();
}

}  // namespace hanji::parallel
