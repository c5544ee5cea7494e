#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hanji/base/version.h"
#include "python/hanji_c10d/source/meet.h"

namespace hanji::python {
namespace {

using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
using StorePtr = c10::intrusive_ptr<::c10d::Store>;

/// The backends of a process, as long as they live: what Python holds of them may end before.
class Living : public std::enable_shared_from_this<Living> {
 public:
  /// A backend that has met the others, and whose parts come from here too.
  BackendPtr meet(const StorePtr& store, int rank, int size, std::chrono::milliseconds timeout,
                  const std::string& name) {
    const auto part = [self = shared_from_this()](const auto&... of) { return self->meet(of...); };
    auto backend =
        python::meet(store, rank, size, {.name = name, .timeout = timeout, .part = part});
    const std::lock_guard lock(mutex_);
    backends_.emplace_back(backend);
    return backend;
  }

  /// Shuts all of them down.
  void leave() {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : backends_) {
      if (const auto backend = weak.lock()) backend->shutdown();
    }
    backends_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<::c10d::Backend>> backends_;
};

}  // namespace
}  // namespace hanji::python

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace hanji;
  module.attr("version") = std::string(base::version());
  using ReleaseGil = pybind11::call_guard<pybind11::gil_scoped_release>;
  pybind11::class_<python::Living, std::shared_ptr<python::Living>>(module, "Living")
      .def(pybind11::init<>())
      .def("meet", &python::Living::meet, pybind11::arg("store"), pybind11::arg("rank"),
           pybind11::arg("size"), pybind11::arg("timeout"), pybind11::arg("name"), ReleaseGil())
      .def("leave", &python::Living::leave, ReleaseGil());
}
