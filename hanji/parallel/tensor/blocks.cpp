#include "hanji/parallel/tensor/blocks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "hanji/compute/deferred.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/product.h"

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

/// Begins at 16 bytes, as does each of its rows and what is behind them.
bool lies_on_vectors(const at::Tensor& matrix) {
  const auto is_whole = [&](int64_t elements) {
    return elements * matrix.element_size() % 16 == 0;
  };
  return is_whole(matrix.storage_offset()) && is_whole(matrix.stride(0)) &&
         is_whole(matrix.size(1));
}

bool begins_a_line(const at::Tensor& x) {
  constexpr int64_t kLine = 64;
  return x.is_contiguous() && x.storage_offset() * x.element_size() % kLine == 0;
}

/// Whether a library multiplies it as it would alone. By the strides of bf16 oneDNN decides between tiles of AMX and
/// vectors, which round differently.
bool lies_as_alone(const at::Tensor& matrix) {
  return matrix.scalar_type() == at::kBFloat16 ? begins_a_line(matrix) : lies_on_vectors(matrix);
}

/// A piece that is multiplied. What does not lie as alone is copied, as kernels choose by that, and where a piece
/// lies depends on what else its rank has.
at::Tensor factor(const at::Tensor& matrix, int64_t dim, Range range) {
  const at::Tensor own = piece(matrix, dim, range);
  return lies_as_alone(own) ? own : own.clone(at::MemoryFormat::Contiguous);
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
    const at::Tensor own = factor(matrix, dim, range);
    return dim == 0 ? own : own.t();
  }
};

/// The sum over blocks of left[:, block] times right[block, :].
at::Tensor sum_products(const FeatureBlocks& blocks, const at::Tensor& left, const Factor& right) {
  const int64_t outputs = right.matrix.size(1 - right.dim);
  return fold_blocks(blocks, {left.size(0), outputs}, left.options(),
                     [&](const std::vector<Range>& ranges, at::Tensor& term) {
                       at::mm_out(term, factor(left, 1, ranges[0]), right.of(ranges[0]));
                       for (size_t i = 1; i < ranges.size(); ++i) {
                         term.addmm_(factor(left, 1, ranges[i]), right.of(ranges[i]));
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
      if (part.scalar_type() != left.scalar_type() || lies_as_alone(part)) {
        compute::product_out(part, left, right);
      } else {
        part.copy_(at::mm(left, right));
      }
    }
  }
}

struct HeldBlocks : torch::CustomClassHolder {
  explicit HeldBlocks(ProductBlocks held) : blocks(std::move(held)) {}
  ProductBlocks blocks;
};

struct Saved {
  at::Tensor x, w;
  Weight weight;
  ProductBlocks blocks;
};

/// The one that all of a weight's equal tensors are.
at::Tensor one_of(const at::Tensor& value, const ProductBlocks& blocks) {
  return blocks.rows ? value[0] : value;
}

/// The weight as it multiplies: its cast lives until the end of the backward.
at::Tensor save(AutogradContext* context, const at::Tensor& x, const Weight& weight,
                const ProductBlocks& blocks) {
  const bool casts = x.defined() && weight.value.scalar_type() != x.scalar_type();
  const at::Tensor one = one_of(weight.value.detach(), blocks);
  const at::Tensor w = casts ? one.to(x.scalar_type()) : one;
  context->save_for_backward({x, weight.value, casts ? w : at::Tensor()});
  context->saved_data["slot"] = weight.slot;
  context->saved_data["blocks"] =
      c10::IValue::make_capsule(c10::make_intrusive<HeldBlocks>(blocks));
  return w;
}

Saved saved_by(AutogradContext* context) {
  const variable_list saved = context->get_saved_variables();
  const auto held = context->saved_data["blocks"].toCapsule();
  const ProductBlocks& blocks = static_cast<const HeldBlocks&>(*held).blocks;
  return {saved[0], saved[2].defined() ? saved[2] : one_of(saved[1].detach(), blocks),
          Weight{saved[1], context->saved_data["slot"].toTensor()}, blocks};
}

/// The blocks of `count` rows, or all of them.
std::vector<Range> row_ranges(const FeatureBlocksPtr& rows, int64_t count) {
  if (!rows) return {{0, count}};
  std::vector<Range> ranges;
  for (const std::vector<Range>& one : rows->ranges) ranges.push_back(one[0]);
  return ranges;
}

/// The gradient of a weight, or its partial sums: fill(rows, term) for each block of `count` rows.
template <class Fill>
at::Tensor gradient_of(const Weight& weight, const FeatureBlocksPtr& rows, int64_t count,
                       const Fill& fill) {
  if (!rows) {
    const at::Tensor whole = gradient_memory(weight);
    fill(Range{0, count}, whole);
    return whole;
  }
  return fold_blocks(
      *rows, weight.value.sizes().slice(1), weight.value.options(),
      [&](const std::vector<Range>& block, const at::Tensor& term) { fill(block[0], term); });
}

/// One block of rows, or all of them.
at::Tensor rows_of(const at::Tensor& x, const FeatureBlocksPtr& blocks, Range some) {
  return blocks ? at_a_line(piece(x, 0, some)) : x;
}

/// compute(block) of each block of the rows of x, joined along `dim`.
template <class Compute>
at::Tensor by_rows(const at::Tensor& x, const FeatureBlocksPtr& blocks, int64_t dim,
                   const Compute& compute) {
  std::vector<at::Tensor> parts;
  for (const Range some : row_ranges(blocks, x.size(0))) {
    parts.push_back(compute(rows_of(x, blocks, some)));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

/// sum_products() of each block of rows.
at::Tensor sum_products_by_rows(const ProductBlocks& blocks, const at::Tensor& left,
                                const Factor& right) {
  return by_rows(left, blocks.rows, 1, [&](const at::Tensor& rows) {
    return sum_products(*blocks.features, rows, right);
  });
}

struct ColumnBlocks : torch::autograd::Function<ColumnBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* weight, const ProductBlocks* blocks) {
    const at::Tensor rows = as_rows(x[0]);
    const at::Tensor w = save(context, rows, *weight, *blocks);
    context->saved_data["sizes"] = x.sizes();
    const int64_t outputs = value.size(-2);
    const at::Tensor y = by_rows(rows, blocks->rows, 0, [&](const at::Tensor& some) {
      const at::Tensor products = at::empty({some.size(0), outputs}, some.options());
      fill_pieces(*blocks->features, products, 1,
                  [&](Range range) { return std::pair(some, factor(w, 0, range).t()); });
      return products;
    });
    return y.view(with_last(x.sizes().slice(1), outputs));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0]);
    at::Tensor gx, gw;
    if (context->needs_input_grad(1)) {
      const auto product = [g, x = saved.x, weight = saved.weight, blocks = saved.blocks] {
        return gradient_of(weight, blocks.rows, x.size(0), [&](Range some, const at::Tensor& term) {
          const at::Tensor own = rows_of(g, blocks.rows, some);
          const at::Tensor inputs = rows_of(x, blocks.rows, some);
          fill_pieces(*blocks.features, term, 0,
                      [&](Range range) { return std::pair(factor(own, 1, range).t(), inputs); });
        });
      };
      gw = compute::weight_gradient(1, {g, saved.x}, product);
    }
    if (context->needs_input_grad(0)) {
      gx = sum_products_by_rows(saved.blocks, g, {saved.w, 0})
               .view(context->saved_data["sizes"].toIntVector());
    }
    return {gx, gw, {}, {}};
  }
};

struct RowBlocks : torch::autograd::Function<RowBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* weight, const ProductBlocks* blocks) {
    const at::Tensor rows = as_rows(x);
    const at::Tensor w = save(context, rows, *weight, *blocks);
    context->saved_data["sizes"] = x.sizes();
    const at::Tensor terms = sum_products_by_rows(*blocks, rows, {w, 1});
    return terms.view(partials_like(terms, with_last(x.sizes(), value.size(-2))));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0][0]);
    at::Tensor gx, gw;
    if (context->needs_input_grad(1)) {
      const auto product = [g, x = saved.x, weight = saved.weight, blocks = saved.blocks] {
        return gradient_of(weight, blocks.rows, x.size(0), [&](Range some, const at::Tensor& term) {
          const at::Tensor own = rows_of(g, blocks.rows, some).t();
          const at::Tensor inputs = rows_of(x, blocks.rows, some);
          fill_pieces(*blocks.features, term, 1,
                      [&](Range range) { return std::pair(own, factor(inputs, 1, range)); });
        });
      };
      gw = compute::weight_gradient(1, {g, saved.x}, product);
    }
    if (context->needs_input_grad(0)) {
      gx = by_rows(g, saved.blocks.rows, 0, [&](const at::Tensor& some) {
        const at::Tensor products = at::empty({some.size(0), saved.x.size(1)}, saved.x.options());
        fill_pieces(*saved.blocks.features, products, 1,
                    [&](Range range) { return std::pair(some, factor(saved.w, 1, range)); });
        return products;
      });
      gx = gx.view(context->saved_data["sizes"].toIntVector());
    }
    return {gx, gw, {}, {}};
  }
};

struct BiasBlocks : torch::autograd::Function<BiasBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const Weight* bias, const ProductBlocks* blocks) {
    (void)save(context, at::Tensor(), *bias, *blocks);
    return x + one_of(value, *blocks).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0]);
    const at::Tensor sums = gradient_of(
        saved.weight, saved.blocks.rows, g.size(0), [&](Range some, const at::Tensor& term) {
          for (const std::vector<Range>& ranges : saved.blocks.features->ranges) {
            for (const Range range : ranges) {
              // A copy, so that no stride decides the order of the sum.
              const at::Tensor own = piece(piece(g, 0, some), 1, range);
              piece(term, 0, range).copy_(own.to(term.scalar_type()).contiguous().sum(0));
            }
          }
        });
    return {gradients[0], sums, {}, {}};
  }
};

struct EmbeddingBlocks : torch::autograd::Function<EmbeddingBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& tokens, const FeatureBlocksPtr* rows) {
    (void)save(context, at::Tensor(), {table, {}}, {nullptr, *rows});
    context->saved_data["tokens"] = tokens;
    return at::embedding(table[0], tokens);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Saved saved = saved_by(context);
    const at::Tensor g = as_rows(gradients[0]);
    const at::Tensor tokens = context->saved_data["tokens"].toTensor().flatten();
    const at::Tensor sums = gradient_of(
        saved.weight, saved.blocks.rows, g.size(0), [&](Range some, const at::Tensor& term) {
          term.copy_(at::embedding_dense_backward(piece(g, 0, some), piece(tokens, 0, some),
                                                  term.size(0), -1, false));
        });
    return {sums, {}, {}};
  }
};

/// All features as one block.
FeatureBlocksPtr one_block(int64_t size) {
  auto all = std::make_shared<FeatureBlocks>();
  all->ranges.push_back({Range{0, size}});
  all->fold = {.partials = {{0, 1}}, .steps = {schedule::FoldStep{}}, .num_buffers = 1};
  return all;
}

struct RowBiasBlocks : torch::autograd::Function<RowBiasBlocks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            const Extents* blocks) {
    context->saved_data["blocks"] = *blocks;
    context->saved_data["summed_in"] = bias.scalar_type();
    return x + bias[0].to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Extents blocks = context->saved_data["blocks"].toIntVector();
    const at::Tensor summed = gradients[0].to(context->saved_data["summed_in"].toScalarType());
    return {gradients[0], compute::sums_of_blocks(summed, blocks), {}};
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

FeatureBlocksPtr token_blocks(int64_t tokens, int64_t samples, const Axis& axis) {
  if (axis.num_blocks() == 1) return nullptr;
  FeatureBlocks blocks = *feature_blocks({.dim = 0}, tokens, axis);
  for (std::vector<Range>& ranges : blocks.ranges) {
    ranges[0] = {samples * ranges[0].begin, samples * ranges[0].end};
  }
  return std::make_shared<const FeatureBlocks>(std::move(blocks));
}

at::Tensor at_a_line(const at::Tensor& x) {
  return begins_a_line(x) ? x : x.clone(at::MemoryFormat::Contiguous);
}

at::Tensor sum_of_terms(const at::Tensor& terms, const Axis& axis) {
  const FeatureBlocksPtr own = feature_blocks({.dim = 0}, axis.num_blocks(), axis);
  return axis.sum_of_blocks(
      fold_blocks(*own, terms.sizes().slice(1), terms.options(),
                  [&](const std::vector<Range>& block, const at::Tensor& term) {
                    term.copy_(terms[block[0].begin]);
                  }));
}

at::Tensor add_bias_in_blocks(const at::Tensor& x, const Weight& bias,
                              const ProductBlocks& blocks) {
  const ProductBlocks both{blocks.features ? blocks.features : one_block(x.size(-1)), blocks.rows};
  return BiasBlocks::apply(x, bias.value, &bias, &both);
}

at::Tensor bias_gelu_to_blocks(const at::Tensor& x, const at::Tensor& bias,
                               const FeatureBlocks& rows) {
  Extents sizes;
  for (const std::vector<Range>& ranges : rows.ranges) sizes.push_back(ranges[0].size());
  std::vector<at::Tensor> parts = as_rows(x).split_with_sizes(sizes);
  const std::vector<at::Tensor> biases = bias.unbind(0);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = compute::bias_gelu(parts[i], {biases[i], {}});
  }
  return at::cat(parts).view(x.sizes());
}

at::Tensor embedding_in_blocks(const at::Tensor& tokens, const at::Tensor& table,
                               const FeatureBlocksPtr& rows) {
  return EmbeddingBlocks::apply(table, tokens, &rows);
}

at::Tensor column_blocks(const at::Tensor& x, const Weight& weight, const ProductBlocks& blocks) {
  if (blocks.features) return ColumnBlocks::apply(x, weight.value, &weight, &blocks);
  const ProductBlocks both{one_block(weight.value.size(-2)), blocks.rows};
  return ColumnBlocks::apply(x.unsqueeze(0), weight.value, &weight, &both);
}

at::Tensor row_blocks(const at::Tensor& x, const Weight& weight, const ProductBlocks& blocks) {
  if (blocks.features) return RowBlocks::apply(x, weight.value, &weight, &blocks);
  const ProductBlocks both{one_block(weight.value.size(-1)), blocks.rows};
  return RowBlocks::apply(x, weight.value, &weight, &both).squeeze(0);
}

}  // namespace hanji::parallel::tensor
