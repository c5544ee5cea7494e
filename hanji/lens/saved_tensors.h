#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace hanji::lens {

/// What stands in autograd's graph for one tensor that an operation has saved for its backward.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// The tensor again, without a graph. Called once per backward through the operation.
  virtual at::Tensor get() = 0;
};

/// Decides what is kept for tensors that are saved.
class Saver {
 public:
  virtual ~Saver() = default;
  /// Parameters and whatever else need not be touched are given back by keep_as_is().
  virtual std::unique_ptr<SavedTensor> save(const at::Tensor& tensor) = 0;
};

/// Shows this thread's saved tensors to `saver` until its end; the innermost scope counts.
///
/// Autograd asks its default engine, of which a process has one, who wants a tensor. So while a scope
/// of any thread is open, an engine of ours is the default one; the end of the last scope makes it
/// libtorch's own again. Other threads save as without it, and all passes run in libtorch's engine.
/// A graph keeps the SavedTensors that it needs: it may run after the scope, and `saver`, are gone.
/// Errors  throws kUnsupported where the default engine is neither, as in a Python process.
/// Thread  begins and ends on one thread.
class SaverScope {
 public:
  explicit SaverScope(Saver& saver);
  SaverScope(const SaverScope&) = delete;
  SaverScope& operator=(const SaverScope&) = delete;
  ~SaverScope();

 private:
  Saver* former_;
};

/// Within it this thread's tensors are saved as without any scope: for a graph that ends at once.
class SaverPause {
 public:
  SaverPause();
  SaverPause(const SaverPause&) = delete;
  SaverPause& operator=(const SaverPause&) = delete;
  ~SaverPause();

 private:
  Saver* former_;
};

/// Memory itself. Errors: get() throws, as torch does, if it was changed in place since.
std::unique_ptr<SavedTensor> keep_as_is(const at::Tensor& tensor);

/// Whether the tensor is a parameter, or another shape of one.
bool is_of_parameter(const at::Tensor& tensor);
/// Whether the tensor is nothing but a dtype, sizes and strides over the bytes of its storage.
bool is_plain(const at::Tensor& tensor);

/// How a tensor lies in its storage.
struct Geometry {
  explicit Geometry(const at::Tensor& tensor);
  /// The tensor that lies so in other memory, which `owner` keeps alive.
  at::Tensor over(std::byte* data, std::shared_ptr<void> owner) const;

  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype;
};

}  // namespace hanji::lens
