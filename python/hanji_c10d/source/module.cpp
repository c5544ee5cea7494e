#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "hanji/base/version.h"
#include "python/hanji_c10d/source/meet.h"

namespace hanji::python {
namespace {

/// The backends of a process, as long as they live: what Python holds of them may end before.
class Living {
 public:
  void add(const c10::intrusive_ptr<::c10d::Backend>& backend) { backends_.emplace_back(backend); }

  /// Shuts all of them down.
  void leave() {
    for (const auto& weak : backends_) {
      if (const auto backend = weak.lock()) backend->shutdown();
    }
    backends_.clear();
  }

 private:
  std::vector<c10::weak_intrusive_ptr<::c10d::Backend>> backends_;
};

}  // namespace
}  // namespace hanji::python

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace hanji;
  module.attr("version") = std::string(base::version());
  module.def(
      "meet",
      [](const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& name) {
        return python::meet(store, rank, size, {.name = name, .timeout = timeout});
      },
      pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
      pybind11::arg("timeout"), pybind11::arg("name"),
      pybind11::call_guard<pybind11::gil_scoped_release>());
  pybind11::class_<python::Living>(module, "Living")
      .def(pybind11::init<>())
      .def("add", &python::Living::add)
      .def("leave", &python::Living::leave, pybind11::call_guard<pybind11::gil_scoped_release>());
}
