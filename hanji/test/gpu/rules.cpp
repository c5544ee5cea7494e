#include "hanji/test/gpu/rules.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace hanji::test::gpu {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

/// "index_put_" of "aten::index_put_".
std::string name_of(const c10::OperatorHandle& operation) {
  const std::string& name = operation.schema().name();
  const size_t colons = name.rfind(':');
  return colons == std::string::npos ? name : name.substr(colons + 1);
}

/// Not tagged as pointwise, though they take a number of the CPU.
bool takes_numbers(const std::string& name) {
  static const std::set<std::string> names = {"fill_",       "index_put_", "_index_put_impl_",
                                              "index_put",   "where",      "masked_fill",
                                              "masked_fill_"};
  return names.count(name) > 0;
}

/// calls see(argument, tensor) with each tensor, also of lists.
template <class See>
void for_each_tensor(const c10::OperatorHandle& operation, Arguments arguments, const See& see) {
  const auto& described = operation.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      if (arguments[i].toTensor().defined()) see(described[i], arguments[i].toTensor());
    } else if (arguments[i].isList()) {
      for (const c10::IValue& element : arguments[i].toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) {
          see(described[i], element.toTensor());
        }
      }
    }
  }
}

bool is_float(Arguments arguments) {
  return arguments[0].isTensor() && arguments[0].toTensor().is_floating_point();
}

bool always(Arguments) { return true; }

/// What libtorch calls alertNotDeterministic() for in its kernels for CUDA, as the documentation of
/// torch.use_deterministic_algorithms (2.11 to 2.13) lists it.
const std::map<std::string, std::function<bool(Arguments)>>& changing() {
  static const std::map<std::string, std::function<bool(Arguments)>> operations = {
      {"avg_pool3d_backward", always},
      {"_adaptive_avg_pool2d_backward", always},
      {"_adaptive_avg_pool3d_backward", always},
      {"adaptive_avg_pool3d_backward", always},
      {"adaptive_max_pool2d_backward", always},
      {"fractional_max_pool2d_backward", always},
      {"fractional_max_pool3d_backward", always},
      {"max_unpool2d", always},
      {"max_unpool3d", always},
      {"upsample_linear1d_backward", always},
      {"upsample_bilinear2d_backward", always},
      {"upsample_bicubic2d_backward", always},
      {"upsample_trilinear3d_backward", always},
      {"_upsample_bilinear2d_aa_backward", always},
      {"_upsample_bicubic2d_aa_backward", always},
      {"reflection_pad1d_backward", always},
      {"reflection_pad2d_backward", always},
      {"reflection_pad3d_backward", always},
      {"nll_loss2d_forward", always},
      {"nll_loss2d_backward", always},
      {"_ctc_loss_backward", always},
      {"grid_sampler_2d_backward", always},
      {"grid_sampler_3d_backward", always},
      {"put_", always},
      {"histc", is_float},
      {"bincount", [](Arguments all) { return all[1].isTensor() && all[1].toTensor().defined(); }},
      {"median", [](Arguments all) { return all.size() > 1; }},
      {"cumsum", is_float},
      {"cumsum_", is_float},
  };
  return operations;
}

bool is_product(const std::string& name) {
  static const std::set<std::string> names = {
      "mm",    "addmm",  "addmm_", "bmm", "baddbmm", "addbmm",           "baddbmm_",
      "addmv", "addmv_", "mv",     "dot", "vdot",    "_addmm_activation"};
  return names.count(name) > 0;
}

}  // namespace

void refuse_mixed_devices(const c10::OperatorHandle& operation, Arguments arguments) {
  const std::string name = name_of(operation);
  const bool numbers = operation.hasTag(at::Tag::pointwise) || takes_numbers(name);
  std::optional<c10::Device> first;
  for_each_tensor(operation, arguments, [&](const c10::Argument& argument, const at::Tensor& x) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const bool number = x.is_cpu() && x.dim() == 0 && !written;
    if (number &&
        (numbers || argument.name() == "lr" || x.unsafeGetTensorImpl()->is_wrapped_number())) {
      return;
    }
    if (!first) first = x.device();
    TORCH_CHECK(*first == x.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                *first, " and ", x.device(), "! (argument ", argument.name(), " of ",
                operation.schema().name(), ")");
  });
}

void refuse_changing_bits(const c10::OperatorHandle& operation, Arguments arguments) {
  if (!at::globalContext().deterministicAlgorithms()) return;
  const std::string name = name_of(operation);
  const auto found = changing().find(name);
  if (found != changing().end() && found->second(arguments)) {
    at::globalContext().alertNotDeterministic(name + "_cuda");
  }
  if (!is_product(name)) return;
  const char* workspace = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  const std::string_view is = workspace == nullptr ? "" : workspace;
  TORCH_CHECK(
      is == ":4096:8" || is == ":16:8",
      "Deterministic behavior was enabled, but this operation is not deterministic because it "
      "uses CuBLAS: set CUBLAS_WORKSPACE_CONFIG=:4096:8 or :16:8 (",
      name, ")");
}

void refuse_cpu_only(const c10::OperatorHandle& operation) {
  static const std::set<std::string> names = {
      "_add_relu",     "_add_relu_",         "from_file",        "histogram",          "to_mkldnn",
      "mkldnn_linear", "mkldnn_convolution", "mkldnn_rnn_layer", "slow_conv3d_forward"};
  const std::string name = name_of(operation);
  const std::string& full = operation.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(full.rfind("mkldnn::", 0) != 0 && names.count(name) == 0 &&
                                  name.find("_for_cpu") == std::string::npos,
                              "Could not run '", full, "' with arguments from the 'CUDA' backend.");
}

bool is_read_by_host(const c10::OperatorHandle& operation) {
  return operation.hasTag(at::Tag::data_dependent_output) ||
         operation.hasTag(at::Tag::dynamic_output_shape);
}

}  // namespace hanji::test::gpu
