#include "hanji/lens/saved_tensors.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>

#include "hanji/base/status.h"

namespace hanji::lens {
namespace {

namespace autograd = torch::autograd;

Saver*& saver_of_thread() {
  thread_local Saver* saver = nullptr;
  return saver;
}

/// Of one tensor. The graph owns it and may outlive the scope: `saver` is used by the constructor of
/// autograd's SavedVariable alone, which calls the pack hook at once.
struct SaverHooks : autograd::SavedVariableHooks {
  explicit SaverHooks(Saver& to) : saver(to) {}
  void call_pack_hook(const at::Tensor& tensor) override { saved = saver.save(tensor); }
  at::Tensor call_unpack_hook() override { return saved->get(); }
  Saver& saver;
  std::unique_ptr<SavedTensor> saved;
};

/// Autograd asks its default engine for the hooks of every tensor that it saves; there is no other
/// way in from C++. Passes run in libtorch's own engine all the same, so one that begins inside a
/// scope and ends after it, or nests in one that began before, has one set of threads and queues.
struct SaverEngine : autograd::Engine {
  static autograd::Engine& get() {
    static auto* engine = new SaverEngine;  // never destroyed: scopes may be static
    return *engine;
  }
  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    Saver* saver = saver_of_thread();
    return saver == nullptr ? nullptr : std::make_unique<SaverHooks>(*saver);
  }
  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                     outputs);
  }
};

/// The scopes of all threads: autograd has one default engine per process. The first that begins
/// takes its place, the last that ends gives it back.
class OpenScopes {
 public:
  static OpenScopes& of_process() {
    static auto* scopes = new OpenScopes;
    return *scopes;
  }

  void enter() {
    const std::lock_guard lock(mutex_);
    const autograd::Engine& now = autograd::Engine::get_default_engine();
    if (&now != (count_ == 0 ? &autograd::Engine::get_base_engine() : &SaverEngine::get())) {
      throw Error(base::unsupported(
          std::string("saved tensors: autograd's engine is not libtorch's own but another one (") +
          typeid(now).name() +
          "), as in a Python process; there take torch.autograd.graph.saved_tensors_hooks"));
    }
    if (count_++ == 0) autograd::set_default_engine_stub(&SaverEngine::get);
  }

  /// An engine that came in between stays: it is not ours to remove.
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--count_ > 0 || &autograd::Engine::get_default_engine() != &SaverEngine::get()) return;
    autograd::set_default_engine_stub(&autograd::Engine::get_base_engine);
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
};

class AsIs : public SavedTensor {
 public:
  /// Without its graph, of which it may be the end: that would be a circle.
  explicit AsIs(const at::Tensor& tensor)
      : tensor_(tensor.detach()), version_(tensor.is_inference() ? 0 : tensor._version()) {}
  at::Tensor get() override {
    const int64_t now = tensor_.is_inference() ? 0 : tensor_._version();
    if (now == version_) return tensor_;
    throw Error(base::invalid_argument(
        "a tensor that backward needs, " + tensor_.toString() + " of " +
        std::to_string(tensor_.numel()) +
        " elements, was changed in place after it was saved (version " + std::to_string(now) +
        ", expected " + std::to_string(version_) +
        "); make a copy, or use the form of the operation that is not in place"));
  }

 private:
  at::Tensor tensor_;
  int64_t version_;
};

}  // namespace

SaverScope::SaverScope(Saver& saver) {
  OpenScopes::of_process().enter();
  former_ = std::exchange(saver_of_thread(), &saver);
}

SaverScope::~SaverScope() {
  saver_of_thread() = former_;
  OpenScopes::of_process().leave();
}

SaverPause::SaverPause() : former_(std::exchange(saver_of_thread(), nullptr)) {}

SaverPause::~SaverPause() { saver_of_thread() = former_; }

std::unique_ptr<SavedTensor> keep_as_is(const at::Tensor& tensor) {
  return std::make_unique<AsIs>(tensor);
}

bool is_of_parameter(const at::Tensor& tensor) {
  if (tensor.is_leaf() && tensor.requires_grad()) return true;
  if (!tensor.is_view()) return false;
  const at::TensorBase& base = tensor._base();
  return base.is_leaf() && base.requires_grad();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta() &&
         !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

Geometry::Geometry(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()),
      dtype(tensor.scalar_type()) {}

at::Tensor Geometry::over(std::byte* data, std::shared_ptr<void> owner) const {
  return at::from_blob(
      data + offset * static_cast<int64_t>(c10::elementSize(dtype)), sizes, strides,
      [owner = std::move(owner)](void*) {}, at::TensorOptions(dtype));
}

}  // namespace hanji::lens
