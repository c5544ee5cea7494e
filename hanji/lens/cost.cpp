#include "hanji/lens/cost.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace hanji::lens {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

const c10::IValue* find(const Operation& operation, std::string_view name) {
  const auto& arguments = operation.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return &operation.arguments()[i];
  }
  return nullptr;
}

const at::Tensor& tensor(const Operation& operation, size_t position) {
  return operation.arguments()[position].toTensor();
}

double product(at::IntArrayRef sizes, size_t from = 0) {
  double all = 1;
  for (size_t i = from; i < sizes.size(); ++i) all *= static_cast<double>(sizes[i]);
  return all;
}

/// Both tensors' own, by rows of the first and columns of the second; batches as broadcast.
double matrix_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 0 || b.dim() == 0) return 0;
  const double inner = static_cast<double>(a.size(-1));
  const double rows = a.dim() > 1 ? static_cast<double>(a.size(-2)) : 1;
  const double columns = b.dim() > 1 ? static_cast<double>(b.size(-1)) : 1;
  double batch = 1;
  for (int64_t dim = 3; dim <= std::max(a.dim(), b.dim()); ++dim) {
    batch *= static_cast<double>(
        std::max(dim <= a.dim() ? a.size(-dim) : 1, dim <= b.dim() ? b.size(-dim) : 1));
  }
  return 2 * batch * rows * inner * columns;
}

template <size_t first>
double product_from(const Operation& operation) {
  return matrix_product(tensor(operation, first), tensor(operation, first + 1));
}

/// x [.., inputs], weight [outputs, inputs].
double linear(const Operation& operation) {
  const auto& weight = tensor(operation, 1);
  return 2.0 * static_cast<double>(tensor(operation, 0).numel()) *
         (weight.dim() == 2 ? static_cast<double>(weight.size(0)) : 1.0);
}

int64_t at_dim(const c10::IValue* list, int64_t dim, int64_t otherwise) {
  if (!list || !list->isIntList()) return otherwise;
  const auto values = list->toIntVector();
  if (values.empty()) return otherwise;
  return values[std::min(static_cast<size_t>(dim), values.size() - 1)];
}

/// Pixels of the output; the input may lack a batch.
double output_pixels(const Operation& operation, const at::Tensor& input,
                     const at::Tensor& weight) {
  const auto* stride = find(operation, "stride");
  const auto* padding = find(operation, "padding");
  const auto* dilation = find(operation, "dilation");
  const bool same = padding && padding->isString() && padding->toStringRef() == "same";
  double pixels = 1;
  for (int64_t dim = 0; dim < weight.dim() - 2; ++dim) {
    const int64_t size = input.size(input.dim() - (weight.dim() - 2) + dim);
    const int64_t reach = at_dim(dilation, dim, 1) * (weight.size(dim + 2) - 1) + 1;
    const int64_t padded = size + 2 * at_dim(padding, dim, 0);
    pixels *= static_cast<double>(same ? size : (padded - reach) / at_dim(stride, dim, 1) + 1);
  }
  return pixels;
}

double convolution(const Operation& operation) {
  const auto& input = tensor(operation, 0);
  const auto& weight = tensor(operation, 1);
  const auto* flag = find(operation, "transposed");
  const bool named_so = operation.name().find("transpose") != std::string::npos;
  if (named_so || (flag && flag->toBool())) {  // every pixel of the input meets the whole kernel
    return 2.0 * static_cast<double>(input.numel()) * product(weight.sizes(), 1);
  }
  const double batch = input.dim() == weight.dim() ? static_cast<double>(input.size(0)) : 1;
  return 2 * batch * output_pixels(operation, input, weight) * product(weight.sizes());
}

/// One product of the forward's size for each of the two gradients that are asked for.
double convolution_backward(const Operation& operation) {
  const auto& gradient = tensor(operation, 0);
  const auto& input = tensor(operation, 1);
  const auto& weight = tensor(operation, 2);
  const auto wanted = find(operation, "output_mask")->toBoolList();
  const bool transposed = find(operation, "transposed")->toBool();
  const double one = transposed
                         ? static_cast<double>(input.numel()) * product(weight.sizes(), 1)
                         : product(gradient.sizes(), 2) * static_cast<double>(gradient.size(0)) *
                               product(weight.sizes());
  return 2 * one * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0));
}

/// q k^T and its product with v, per head; `products` of that size in all, halved.
template <size_t query, int products>
double attention(const Operation& operation) {
  const auto& q = tensor(operation, query);
  const auto& k = tensor(operation, query + 1);
  const auto& v = tensor(operation, query + 2);
  const double pairs = product(q.sizes()) / static_cast<double>(std::max<int64_t>(q.size(-1), 1)) *
                       static_cast<double>(k.size(-2));
  return products * pairs * static_cast<double>(q.size(-1) + v.size(-1));
}

/// Every matrix of weights meets every element of the sequence once.
double recurrent(const Operation& operation) {
  const auto& input = tensor(operation, 0);
  const double inputs = static_cast<double>(std::max<int64_t>(input.size(-1), 1));
  const double elements = static_cast<double>(input.numel()) / inputs;
  double weights = 0;
  const auto* parameters = find(operation, "params");
  if (!parameters) return 0;
  for_each_tensor(parameters->toListRef(), [&](const at::Tensor& parameter) {
    if (parameter.dim() == 2) weights += static_cast<double>(parameter.numel());
  });
  return 2 * elements * weights;
}

double rnn_layer(const Operation& operation, double passes) {
  const auto& input = tensor(operation, 0);
  const double elements = static_cast<double>(input.numel()) /
                          static_cast<double>(std::max<int64_t>(input.size(-1), 1));
  return 2 * passes * elements *
         static_cast<double>(tensor(operation, 1).numel() + tensor(operation, 2).numel());
}

/// One multiplication and addition for every combination of letters.
double einsum(const Operation& operation) {
  const auto tensors = operation.arguments()[1].toListRef();
  if (tensors.size() != 2) return 0;
  const std::string& equation = operation.arguments()[0].toStringRef();
  double sizes[256] = {};
  size_t which = 0;
  int64_t dim = 0;
  for (const char c : equation.substr(0, equation.find("->"))) {
    if (c == '.') return 0;
    if (c == ',') {
      if (++which == 2) return 0;
      dim = 0;
    } else if (c != ' ' && dim < tensors[which].toTensor().dim()) {
      sizes[static_cast<unsigned char>(c)] =
          static_cast<double>(tensors[which].toTensor().size(dim++));
    }
  }
  double all = 2;
  for (const double size : sizes) all *= size > 0 ? size : 1;
  return all;
}

using Formula = double (*)(const Operation&);

const std::unordered_map<std::string_view, Formula>& formulas() {
  static const std::unordered_map<std::string_view, Formula> table = {
      {"aten::mm", product_from<0>},
      {"aten::bmm", product_from<0>},
      {"aten::mv", product_from<0>},
      {"aten::dot", product_from<0>},
      {"aten::matmul", product_from<0>},
      {"aten::addmm", product_from<1>},
      {"aten::addmm_", product_from<1>},
      {"aten::_addmm_activation", product_from<1>},
      {"aten::addmv", product_from<1>},
      {"aten::addbmm", product_from<1>},
      {"aten::baddbmm", product_from<1>},
      {"aten::baddbmm_", product_from<1>},
      {"aten::linear", linear},
      {"aten::mkldnn_linear", linear},
      {"mkldnn::_linear_pointwise", linear},
      {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},
      {"aten::conv3d", convolution},
      {"aten::conv_transpose1d", convolution},
      {"aten::conv_transpose2d", convolution},
      {"aten::conv_transpose3d", convolution},
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},
      {"aten::mkldnn_convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::scaled_dot_product_attention", attention<0, 2>},
      {"aten::_scaled_dot_product_flash_attention", attention<0, 2>},
      {"aten::_scaled_dot_product_efficient_attention", attention<0, 2>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention<0, 2>},
      // Scores once more, then the gradients of v, of the weights, of q and of k.
      {"aten::_scaled_dot_product_flash_attention_backward", attention<1, 5>},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention<1, 5>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1, 5>},
      {"aten::lstm", recurrent},
      {"aten::gru", recurrent},
      {"aten::rnn_tanh", recurrent},
      {"aten::rnn_relu", recurrent},
      {"aten::mkldnn_rnn_layer", [](const Operation& o) { return rnn_layer(o, 1); }},
      {"aten::mkldnn_rnn_layer_backward", [](const Operation& o) { return rnn_layer(o, 2); }},
      {"aten::einsum", einsum},
  };
  return table;
}

}  // namespace

double flops(const Operation& operation) {
  const auto place = formulas().find(operation.name());
  if (place == formulas().end() || operation.arguments().empty()) return 0;
  return place->second(operation);
}

int64_t moved_bytes(const Operation& operation) {
  if (operation.is_view()) return 0;
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& t) { bytes += static_cast<int64_t>(t.nbytes()); };
  operation.for_each_input(add);
  operation.for_each_output(add);
  return bytes;
}

}  // namespace hanji::lens
