#include "hanji/comm/c10d/internal/staging.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>

#include "hanji/base/status.h"

namespace hanji::comm::c10d {
namespace {

void check_dense(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error(base::invalid_argument("c10d brought an undefined tensor"));
  if (tensor.layout() != c10::Layout::Strided) {
    throw Error(base::unsupported(
        fmt::format("a tensor of layout {} came to backend hanji, which moves dense tensors (and "
                    "all-reduces sparse COO ones); pass tensor.to_dense()",
                    fmt::streamed(tensor.layout()))));
  }
}

at::Tensor detached(const at::Tensor& tensor) {
  check_dense(tensor);
  at::Tensor plain = tensor.detach();
  if (plain.is_conj()) plain = plain.resolve_conj();
  if (plain.is_neg()) plain = plain.resolve_neg();
  return plain;
}

c10::ScalarType reduced_as(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Char:
    case c10::ScalarType::Short: return c10::ScalarType::Int;
    case c10::ScalarType::Bool: return c10::ScalarType::Byte;
    default: return type;
  }
}

void check_complex(const at::Tensor& tensor, schedule::ReduceOp op) {
  using schedule::ReduceOp;
  if (!tensor.is_complex() || op == ReduceOp::kSum || op == ReduceOp::kAvg) return;
  throw Error(base::unsupported(
      fmt::format("complex numbers are reduced by sum and avg only, and {} was asked for",
                  schedule::name_of(op))));
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.nbytes() == b.nbytes();
}

}  // namespace

at::Tensor to_move(const at::Tensor& tensor) { return detached(tensor).contiguous(); }

at::Tensor to_reduce(const at::Tensor& tensor, schedule::ReduceOp op) {
  const at::Tensor plain = to_move(tensor);
  check_complex(plain, op);
  if (plain.is_complex()) return at::view_as_real(plain);
  return plain.to(reduced_as(plain.scalar_type()));
}

at::Tensor to_fill(const at::Tensor& tensor) {
  const at::Tensor plain = detached(tensor);
  return plain.is_contiguous() ? plain : at::empty(plain.sizes(), plain.options());
}

at::Tensor to_fill_reduced(const at::Tensor& tensor, schedule::ReduceOp op) {
  const at::Tensor plain = to_fill(tensor);
  check_complex(plain, op);
  if (plain.is_complex()) return at::view_as_real(plain);
  const c10::ScalarType type = reduced_as(plain.scalar_type());
  if (type == plain.scalar_type()) return plain;
  return at::empty(plain.sizes(), plain.options().dtype(type));
}

void put_back(const at::Tensor& tensor, const at::Tensor& staged) {
  if (same_memory(tensor, staged)) return;
  const bool pairs = tensor.is_complex() && !staged.is_complex();
  tensor.detach().copy_((pairs ? at::view_as_complex(staged) : staged).view(tensor.sizes()));
}

at::Tensor flatten(const Tensors& tensors) {
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(detached(tensor).reshape(-1));
  return flat.size() == 1 ? flat[0].contiguous() : at::cat(flat);
}

void spread(const at::Tensor& flat, const Tensors& tensors) {
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor piece = flat.narrow(0, begin, tensor.numel());
    tensor.detach().copy_(piece.view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::vector<int64_t> uneven_counts(const Tensors& tensors) {
  std::vector<int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  const auto differs = [&](int64_t count) { return count != counts[0]; };
  return std::any_of(counts.begin(), counts.end(), differs) ? counts : std::vector<int64_t>();
}

}  // namespace hanji::comm::c10d
