#include "hanji/parallel/fsdp/internal/flat_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

#include "hanji/comm/all_gather.h"
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

c10::StorageImpl& storage_of(const at::Tensor& parameter) {
  return *parameter.storage().unsafeGetStorageImpl();
}

/// A whole parameter keeps its sizes; of a matrix that is cut, a piece is one row, so that rules by
/// dimension (no weight decay of vectors) still hold.
std::vector<int64_t> leaf_sizes(const at::Tensor& parameter, const layout::Range& elements) {
  if (elements.size() == parameter.numel()) return parameter.sizes().vec();
  if (parameter.dim() >= 2) return {1, elements.size()};
  return {elements.size()};
}

}  // namespace

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
  if (home.near && residence_ == Residence::kGathered) near_.emplace(plan_, *home.near);
  make_leaves(home.initial);
  if (stored_) stored_->keep();
  if (residence_ == Residence::kShared) begin_publish();
  if (residence_ == Residence::kReplicated) fill_replicas(home.initial);
}

FlatUnit::~FlatUnit() {
  if (open_ || residence_ == Residence::kGathered) return;
  for (const auto& entry : parameters_) storage_of(entry.tensor).clear_data_ptr_access_error_msg_();
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
    return wait_gathered();
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
    open_ = true;
  } else {
    open_ = true;
    seal();
  }
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

at::Tensor FlatUnit::own_of(const at::Tensor& whole) const {
  return whole.narrow(0, range().begin, range().size());
}

void FlatUnit::read_ahead() {
  const bool is_near = near_ && near_->is_kept();
  if (stored_ && !is_near && !open_ && !gathering_.begun()) stored_->read_ahead();
}

void FlatUnit::begin_gather() {
  if (open_ || gathering_.begun() || residence_ != Residence::kGathered) return;
  const at::NoGradGuard no_grad;
  whole_ = empty_whole(dtypes_.compute, "unsharded units");
  if (near_ && near_->is_kept()) {
    gathering_ = near_->gather(whole_, name_);
    return;
  }
  if (stored_) stored_->bring();
  // Rounded before it travels.
  const at::Tensor own = is_mixed() ? own_of(whole_).copy_(shard_) : shard_;
  gathering_ = comm::all_gather(whole_, own, counts_, group_, {.label = name_});
}

void FlatUnit::open() {
  if (open_) return;
  if (residence_ == Residence::kGathered) {
    begin_gather();
    wait_gathered();
    point_at(whole_);
  }
  for (const auto& entry : parameters_) storage_of(entry.tensor).clear_data_ptr_access_error_msg_();
  open_ = true;
}

void FlatUnit::reshard() {
  if (near_ && open_) near_->keep(whole_);
  close();
}

void FlatUnit::seal() {
  if (near_) near_->drop();
  close();
}

void FlatUnit::close() {
  if (gathering_.begun()) {  // ahead of a use that did not come
    wait_gathered();
    whole_.reset();
  }
  if (!open_) return;
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
  open_ = false;
}

void FlatUnit::wait_gathered() {
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
