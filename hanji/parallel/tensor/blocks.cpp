#include "hanji/parallel/tensor/blocks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "hanji/compute/deferred.h"
#include "hanji/compute/layer_norm.h"

namespace hanji::parallel::tensor {
namespace {

using compute::Weight;
using layout::Range;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Columns or rows of a matrix.
at::Tensor piece(const at::Tensor& matrix, int64_t dim, Range range) {
  return matrix.narrow(dim, range.begin, range.size());
}

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::vector<int64_t> with_last(at::IntArrayRef sizes, int64_t last) {
  std::vector<int64_t> all = sizes.vec();
  all.back() = last;
  return all;
}

std::vector<int64_t> partials_like(const at::Tensor& partials, at::IntArrayRef sizes) {
  std::vector<int64_t> all = sizes.vec();
  all.insert(all.begin(), partials.size(0));
  return all;
}

/// One factor of a block's term: a piece of it for each segment.
struct Factor {
  const at::Tensor& matrix;
  int64_t dim;

  at::Tensor of(Range range) const {
    const at::Tensor own = piece(matrix, dim, range);
    return dim == 0 ? own : own.t();
  }
};

/// The sum over blocks of left[:, block] times right[block, :].
at::Tensor sum_products(const FeatureBlocks& blocks, const at::Tensor& left, const Factor& right) {
  const int64_t outputs = right.matrix.size(1 - right.dim);
  return fold_blocks(blocks, {left.size(0), outputs}, left.options(),
                     [&](const std::vector<Range>& ranges, at::Tensor& term) {
                       at::mm_out(term, piece(left, 1, ranges[0]), right.of(ranges[0]));
                       for (size_t i = 1; i < ranges.size(); ++i) {
                         term.addmm_(piece(left, 1, ranges[i]), right.of(ranges[i]));
                       }
                     });
}

/// product(range) into that range of `whole` along `dim`, one by one.
template <class Product>
void fill_pieces(const FeatureBlocks& blocks, const at::Tensor& whole, int64_t dim,
                 const Product& product) {
  for (const std::vector<Range>& ranges : blocks.ranges) {
    for (const Range range : ranges) {
      at::Tensor part = piece(whole, dim, range);
      const auto [left, right] = product(range);
      if (part.scalar_type() == left.scalar_type()) {
        at::mm_out(part, left, right);
      } else {
        part.copy_(at::mm(left, right));
      }
    }
  }
}

struct HeldBlocks : torch::CustomClassHolder {
  explicit HeldBlocks(FeatureBlocksPtr held) : blocks(std::move(held)) {}
  FeatureBlocksPtr blocks;
};

struct Saved {
  at::Tensor x, w;
  Weight weight;
  FeatureBlocksPtr blocks;
};

/// The weight as it multiplies: its cast lives until the end of the backward.
at::Tensor save(AutogradContext* context, const at::Tensor& x, const Weight& weight,
                const FeatureBlocksPtr& blocks) {
  const bool casts = x.defined() && weight.value.scalar_type() != x.scalar_type();
  const at::Tensor w = casts ? weight.value.detach().to(x.scalar_type()) : weight.value.detach();
  context->save_for_backward({x, weight.value, casts ? w : at::Tensor()});
  context->saved_data["slot"] = weight.slot;
  context->saved_data["blocks"] =
      c10::IValue::make_capsule(c10::make_intrusive<HeldBlocks>(blocks));
  return w;
}

Saved saved_by(AutogradContext* context) {
  const variable_list saved = context->get_saved_variables();
  const auto held = context->saved_data["blocks"].toCapsule();
  return {saved[0], saved[2].defined() ? saved[2] : saved[1].detach(),
          Weight{saved[1], context->saved_data["slot"].toTensor()},
          static_cast<const HeldBlocks&>(*held).blocks};
}

struct ColumnBlocks : torch::autograd::Function<ColumnBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* weight, const FeatureBlocksPtr* blocks) {
    const at::Tensor rows = as_rows(x[0]);
    const at::Tensor w = save(context, rows, *weight, *blocks);
    context->saved_data["sizes"] = x.sizes();
    const at::Tensor y = at::empty({rows.size(0), value.size(0)}, rows.options());
    fill_pieces(**blocks, y, 1,
                [&](Range range) { return std::pair(rows, piece(w, 0, range).t()); });
    return y.view(with_last(x.sizes().slice(1), value.size(0)));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0]);
    at::Tensor gx, gw;
    if (context->needs_input_grad(1)) {
      const auto product = [g, x = saved.x, weight = saved.weight, blocks = saved.blocks] {
        const at::Tensor whole = gradient_memory(weight);
        fill_pieces(*blocks, whole, 0,
                    [&](Range range) { return std::pair(piece(g, 1, range).t(), x); });
        return whole;
      };
      gw = compute::weight_gradient(1, {g, saved.x}, product);
    }
    if (context->needs_input_grad(0)) {
      gx = sum_products(*saved.blocks, g, {saved.w, 0})
               .view(context->saved_data["sizes"].toIntVector());
    }
    return {gx, gw, {}, {}};
  }
};

struct RowBlocks : torch::autograd::Function<RowBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* weight, const FeatureBlocksPtr* blocks) {
    const at::Tensor rows = as_rows(x);
    const at::Tensor w = save(context, rows, *weight, *blocks);
    context->saved_data["sizes"] = x.sizes();
    const at::Tensor terms = sum_products(**blocks, rows, {w, 1});
    return terms.view(partials_like(terms, with_last(x.sizes(), value.size(0))));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0][0]);
    at::Tensor gx, gw;
    if (context->needs_input_grad(1)) {
      const auto product = [g, x = saved.x, weight = saved.weight, blocks = saved.blocks] {
        const at::Tensor whole = gradient_memory(weight);
        fill_pieces(*blocks, whole, 1,
                    [&](Range range) { return std::pair(g.t(), piece(x, 1, range)); });
        return whole;
      };
      gw = compute::weight_gradient(1, {g, saved.x}, product);
    }
    if (context->needs_input_grad(0)) {
      gx = at::empty_like(saved.x, at::MemoryFormat::Contiguous);
      fill_pieces(*saved.blocks, gx, 1,
                  [&](Range range) { return std::pair(g, piece(saved.w, 1, range)); });
      gx = gx.view(context->saved_data["sizes"].toIntVector());
    }
    return {gx, gw, {}, {}};
  }
};

struct BiasBlocks : torch::autograd::Function<BiasBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* bias, const FeatureBlocksPtr* blocks) {
    (void)save(context, at::Tensor(), *bias, *blocks);
    return x + value.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0]);
    const at::Tensor sums = gradient_memory(saved.weight);
    for (const std::vector<Range>& ranges : saved.blocks->ranges) {
      for (const Range range : ranges) {
        // A copy, so that no stride decides the order of the sum.
        const at::Tensor rows = piece(g, 1, range).to(sums.scalar_type()).contiguous();
        piece(sums, 0, range).copy_(rows.sum(0));
      }
    }
    return {gradients[0], sums, {}, {}};
  }
};

struct RowBiasBlocks : torch::autograd::Function<RowBiasBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            const Extents* blocks) {
    context->saved_data["blocks"] = *blocks;
    return x + bias[0];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Extents blocks = context->saved_data["blocks"].toIntVector();
    return {gradients[0], compute::sums_of_blocks(gradients[0], blocks), {}};
  }
};

}  // namespace

Extents own_block_sizes(int64_t size, const Axis& axis) {
  Extents sizes;
  for (const schedule::FoldStep& step : axis.fold().steps) {
    sizes.push_back(
        layout::part_of(size, 1, static_cast<int>(step.grain), axis.num_blocks()).size());
  }
  return sizes;
}

at::Tensor add_bias_to_blocks(const at::Tensor& x, const at::Tensor& bias, const Extents& blocks) {
  return RowBiasBlocks::apply(x, bias, &blocks);
}

FeatureBlocksPtr feature_blocks(layout::Placement placement, int64_t size, const Axis& axis) {
  const int count = axis.num_blocks();
  if (count == 1) return nullptr;
  placement.blocks = count;
  const auto own = layout::parts_of(placement, size, axis.rank(), axis.degree()).or_throw();
  auto blocks = std::make_shared<FeatureBlocks>();
  blocks->fold = axis.fold();
  for (const schedule::FoldStep& step : blocks->fold.steps) {
    auto ranges = layout::parts_of(placement, size, static_cast<int>(step.grain), count).or_throw();
    int64_t begin = 0;  // of the segment in this rank's part
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int64_t shift = begin - own[i].begin;
      ranges[i] = {ranges[i].begin + shift, ranges[i].end + shift};
      begin += own[i].size();
    }
    blocks->ranges.push_back(std::move(ranges));
  }
  return blocks;
}

at::Tensor fold_blocks(const FeatureBlocks& blocks, at::IntArrayRef sizes,
                       const at::TensorOptions& options, const MakeTerm& make_term) {
  const auto& fold = blocks.fold;
  std::vector<int64_t> all = sizes.vec();
  all.insert(all.begin(), std::ssize(fold.partials));
  const at::Tensor partials = at::empty(all, options.requires_grad(false));
  std::vector<at::Tensor> buffers;
  for (int b = 0; b < fold.num_buffers; ++b) {
    buffers.push_back(b < std::ssize(fold.partials) ? partials[b] : at::empty_like(partials[0]));
  }
  for (size_t i = 0; i < fold.steps.size(); ++i) {
    const schedule::FoldStep& step = fold.steps[i];
    make_term(blocks.ranges[i], buffers[step.buffer]);
    for (const auto& [into, from] : step.combines) buffers[into].add_(buffers[from]);
  }
  return partials;
}

at::Tensor add_bias_in_blocks(const at::Tensor& x, const Weight& bias,
                              const FeatureBlocksPtr& blocks) {
  return BiasBlocks::apply(x, bias.value, &bias, &blocks);
}

at::Tensor column_blocks(const at::Tensor& x, const Weight& weight,
                         const FeatureBlocksPtr& blocks) {
  return ColumnBlocks::apply(x, weight.value, &weight, &blocks);
}

at::Tensor row_blocks(const at::Tensor& x, const Weight& weight, const FeatureBlocksPtr& blocks) {
  return RowBlocks::apply(x, weight.value, &weight, &blocks);
}

}  // namespace hanji::parallel::tensor
