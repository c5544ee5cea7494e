#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/c10d/internal/group_backend.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"

namespace hanji::comm::c10d {
namespace {

using ::c10d::OpType;

schedule::ReduceOp to_reduce_op(const ::c10d::ReduceOp& op) {
  switch (static_cast<::c10d::ReduceOp::RedOpType>(op)) {
    case ::c10d::ReduceOp::SUM: return schedule::ReduceOp::kSum;
    case ::c10d::ReduceOp::AVG: return schedule::ReduceOp::kAvg;
    case ::c10d::ReduceOp::MIN: return schedule::ReduceOp::kMin;
    case ::c10d::ReduceOp::MAX: return schedule::ReduceOp::kMax;
    case ::c10d::ReduceOp::PRODUCT: return schedule::ReduceOp::kProd;
    case ::c10d::ReduceOp::BAND: return schedule::ReduceOp::kBitAnd;
    case ::c10d::ReduceOp::BOR: return schedule::ReduceOp::kBitOr;
    case ::c10d::ReduceOp::BXOR: return schedule::ReduceOp::kBitXor;
    case ::c10d::ReduceOp::PREMUL_SUM: return schedule::ReduceOp::kSum;  // of to_add()
    default: break;
  }
  throw Error(
      base::unsupported("hanji reduces by sum, avg, min, max, product, bits and premultiplied sum; "
                        "c10d asked for another operation"));
}

/// What this rank adds to the reduction: of a premultiplied sum, its tensor times its factor.
at::Tensor to_add(const at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  at::Tensor plain = to_reduce(tensor, to_reduce_op(op));
  const auto* factor = dynamic_cast<::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (op != ::c10d::ReduceOp::PREMUL_SUM || factor == nullptr) return plain;
  return factor->tensor_factor.defined() ? plain.mul(factor->tensor_factor.to(plain.scalar_type()))
                                         : plain.mul(factor->double_factor);
}

void check_lists(size_t outputs, size_t inputs, const char* title) {
  if (outputs == inputs) return;
  throw Error(
      base::invalid_argument(fmt::format("{}: {} outputs for {} inputs", title, outputs, inputs)));
}

/// What all ranks have under `mine`, whose first dimension differs by rank; rank r has counts[r].
at::Tensor gather_rows(const at::Tensor& mine, const std::vector<int64_t>& counts,
                       const Group& group) {
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  auto sizes = mine.sizes().vec();
  sizes[0] = rows;
  at::Tensor all = at::empty(sizes, mine.options());
  const int64_t width = rows == 0 ? 0 : all.numel() / rows;
  std::vector<int64_t> elements = counts;
  for (int64_t& each : elements) each *= width;
  all_gather(all, mine, elements, group, {.label = "c10d"}).wait();
  return all;
}

}  // namespace

hanji::comm::Work GroupBackend::start_all_reduce(const at::Tensor& tensor,
                                                 const ::c10d::ReduceOp& c10d_op,
                                                 std::vector<Then>& thens) {
  const schedule::ReduceOp op = to_reduce_op(c10d_op);
  at::Tensor staged = to_add(tensor, c10d_op);
  auto work = all_reduce(staged, group(), {.op = op, .label = "c10d"});
  thens.push_back([tensor, staged] { put_back(tensor, staged); });
  return work;
}

hanji::comm::Work GroupBackend::start_reduce_scatter(at::Tensor& output, const at::Tensor& input,
                                                     const ::c10d::ReduceOp& c10d_op,
                                                     std::vector<Then>& thens) {
  const schedule::ReduceOp op = to_reduce_op(c10d_op);
  at::Tensor staged = to_fill_reduced(output, op);
  auto work =
      comm::reduce_scatter(staged, to_add(input, c10d_op), group(), {.op = op, .label = "c10d"});
  thens.push_back([output, staged] { put_back(output, staged); });
  return work;
}

WorkPtr GroupBackend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const auto name = named(OpType::ALLREDUCE, "hanji:all_reduce", options.timeout, tensors);
  const at::Tensor& tensor = only(tensors, name.title);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  std::vector<Then> thens;
  auto work = start_all_reduce(tensor, options.reduceOp, thens);
  return track(name, tensors, std::move(work), in_turn(std::move(thens)));
}

// Who has how many elements is known only after a first round, which is waited for here.
WorkPtr GroupBackend::allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const at::NoGradGuard no_grad;
  const auto name =
      named(OpType::_ALLREDUCE_SPARSE, "hanji:sparse_all_reduce", options.timeout, tensors);
  const at::Tensor& tensor = only(tensors, name.title);
  if (!tensor.is_sparse() || to_reduce_op(options.reduceOp) != schedule::ReduceOp::kSum) {
    throw Error(base::unsupported(
        "sparse all_reduce takes COO tensors and sums them; pass tensor.to_dense()"));
  }
  const at::Tensor mine = tensor.detach().coalesce();
  at::Tensor count = at::empty({1}, at::kLong).fill_(mine._nnz());
  at::Tensor counted = at::empty({size_}, at::kLong);
  all_gather(counted, count, group(), {.label = "c10d"}).wait();
  const auto* first = counted.const_data_ptr<int64_t>();
  const std::vector<int64_t> counts(first, first + size_);
  const at::Tensor indices = gather_rows(mine._indices().t().contiguous(), counts, group());
  const at::Tensor values = gather_rows(mine._values().contiguous(), counts, group());
  const at::Tensor sum =
      at::_sparse_coo_tensor_unsafe(indices.t(), values, mine.sizes()).coalesce();
  at::Tensor(tensor).copy_(sum);  // of a sparse tensor, detach() would be another one
  return track(name, tensors, {});
}

WorkPtr GroupBackend::allreduce_coalesced(Tensors& tensors,
                                          const ::c10d::AllreduceCoalescedOptions& options) {
  const auto name =
      named(OpType::ALLREDUCE_COALESCED, "hanji:all_reduce_coalesced", options.timeout, tensors);
  hanji::comm::Work last;  // calls complete in order, so the last one speaks for all
  std::vector<Then> thens;
  for (const at::Tensor& tensor : tensors) {
    last = start_all_reduce(tensor, options.reduceOp, thens);
  }
  return track(name, tensors, last, in_turn(std::move(thens)));
}

WorkPtr GroupBackend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  const auto name = named(OpType::REDUCE, "hanji:reduce", options.timeout, tensors);
  const at::Tensor tensor = only(tensors, name.title);
  const schedule::ReduceOp op = to_reduce_op(options.reduceOp);
  at::Tensor staged = to_add(tensor, options.reduceOp);
  const auto root = static_cast<int>(options.rootRank);
  auto work = comm::reduce(staged, root, group(), {.op = op, .label = "c10d"});
  if (root != rank_) return track(name, tensors, std::move(work));
  return track(name, tensors, std::move(work), [tensor, staged] { put_back(tensor, staged); });
}

WorkPtr GroupBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const ::c10d::ReduceScatterOptions& options) {
  const auto name = named(OpType::REDUCE_SCATTER, "hanji:reduce_scatter", options.timeout,
                          inputs.empty() ? Tensors() : inputs[0]);
  at::Tensor output = only(outputs, name.title);
  check_lists(1, inputs.size(), name.title);
  check_lists(size_, inputs[0].size(), name.title);
  const schedule::ReduceOp op = to_reduce_op(options.reduceOp);
  const at::Tensor flat = flatten(inputs[0]);
  const at::Tensor input = to_add(flat, options.reduceOp);
  at::Tensor staged = to_fill_reduced(output, op);
  auto counts = uneven_counts(inputs[0]);
  if (flat.is_complex()) {
    for (int64_t& count : counts) count *= 2;  // real numbers
  }
  const ReduceScatterOptions how{.op = op, .label = "c10d"};
  auto work = counts.empty() ? comm::reduce_scatter(staged, input, group(), how)
                             : comm::reduce_scatter(staged, input, counts, group(), how);
  return track(name, outputs, std::move(work), [output, staged] { put_back(output, staged); });
}

WorkPtr GroupBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const ::c10d::ReduceScatterOptions& options) {
  const auto name =
      named(OpType::_REDUCE_SCATTER_BASE, "hanji:_reduce_scatter_base", options.timeout, {input});
  std::vector<Then> thens;
  auto work = start_reduce_scatter(output, input, options.reduceOp, thens);
  return track(name, {output}, std::move(work), in_turn(std::move(thens)));
}

WorkPtr GroupBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const ::c10d::ReduceScatterOptions& options) {
  const auto name =
      named(OpType::COALESCED, "hanji:reduce_scatter_tensor_coalesced", options.timeout, inputs);
  check_lists(outputs.size(), inputs.size(), name.title);
  hanji::comm::Work last;
  std::vector<Then> thens;
  for (size_t i = 0; i < inputs.size(); ++i) {
    last = start_reduce_scatter(outputs[i], inputs[i], options.reduceOp, thens);
  }
  return track(name, outputs, last, in_turn(std::move(thens)));
}

}  // namespace hanji::comm::c10d
