#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>

#include "hanji/base/status.h"
#include "hanji/comm/linear_map.h"
#include "hanji/parallel/context/internal/ways.h"

namespace hanji::parallel::context {
namespace {

using compute::AttentionOptions;
using tensor::Cut;
using tensor::Segments;

int64_t kv_heads_of(const AttentionOptions& options) {
  return options.kv_heads == 0 ? options.heads : options.kv_heads;
}

/// Heads of an axis and of its ranks, and the columns that they are.
struct HeadColumns {
  int64_t repeats = 1;
  int64_t heads = 1, kv_heads = 1;  ///< Of all ranks, repeated ones counted.
  Extents own_heads;                ///< By rank.
  Extents attended;                 ///< Columns of these,
  Segments segments;                ///< and of their queries, keys and values,
  Extents projected;                ///< all three together.
  int64_t size = 1;                 ///< Of a head.

  HeadColumns(int64_t row, const AttentionOptions& options, int ranks) {
    const layout::ContextAttention attention{
        .heads = options.heads, .kv_heads = kv_heads_of(options), .ranks = ranks};
    if (options.heads < ranks) {
      throw Error(base::invalid_argument(fmt::format(
          "ulysses: {} heads on {} ranks of cp; a rank has whole heads", options.heads, ranks)));
    }
    repeats = layout::context_repeats(attention);
    heads = attention.heads;
    kv_heads = attention.kv_heads * repeats;
    size = row / (heads + 2 * attention.kv_heads);
    own_heads = layout::context_heads(attention);
    Extents keys;
    for (const int64_t own : own_heads) {
      attended.push_back(own * size);
      keys.push_back(own / (heads / kv_heads) * size);
      projected.push_back(attended.back() + 2 * keys.back());
    }
    segments = {attended, keys, keys};
  }
};

/// Keys and values [..., (heads + 2 kv_heads) size], each `repeats` times.
at::Tensor with_repeats(const at::Tensor& x, const HeadColumns& columns) {
  if (columns.repeats == 1) return x;
  const int64_t kv_heads = columns.kv_heads / columns.repeats, keys = kv_heads * columns.size;
  auto parts = x.split_with_sizes({columns.heads * columns.size, keys, keys}, -1);
  for (size_t i : {1, 2}) {
    parts[i] = parts[i]
                   .unflatten(-1, {kv_heads, columns.size})
                   .repeat_interleave(columns.repeats, -2)
                   .flatten(-2);
  }
  return at::cat(parts, -1);
}

/// Of a bias of all columns those of one rank.
at::Tensor own_columns(const at::Tensor& bias, const HeadColumns& columns, int rank) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const Extents& segment : columns.segments) {
    const int64_t before = std::accumulate(segment.begin(), segment.begin() + rank, begin);
    parts.push_back(bias.narrow(0, before, segment[rank]));
    begin = std::accumulate(segment.begin(), segment.end(), begin);
  }
  return at::cat(parts);
}

/// Moves the cut from one dimension to the other, and backward the other way.
at::Tensor moved(const at::Tensor& x, Cut from, Cut to, const Axis& axis) {
  const auto move = [axis](Cut source, Cut target) {
    return [axis, source_dim = source.dim, source_extents = source.extents,
            source_segments = source.segments ? *source.segments : Segments(),
            target_dim = target.dim, target_extents = target.extents,
            target_segments = target.segments ? *target.segments : Segments()](const auto& part) {
      const auto segments = [](const Segments& s) { return s.empty() ? nullptr : &s; };
      return axis.transpose(part, {source_dim, source_extents, segments(source_segments)},
                            {target_dim, target_extents, segments(target_segments)});
    };
  };
  return comm::apply_linear(x, {move(from, to), move(to, from)});
}

}  // namespace

at::Tensor internal::ulysses_attention(const at::Tensor& qkv, const compute::Weight& bias,
                                       const AttentionOptions& options, const Places& places) {
  const Axis& axis = places.axis;
  const HeadColumns columns(qkv.size(-1), options, axis.degree());
  const Extents tokens = places.extents();
  AttentionOptions own = options;
  own.heads = columns.own_heads[axis.rank()];
  own.kv_heads = own.heads / (columns.heads / columns.kv_heads);
  const int64_t before = std::accumulate(columns.own_heads.begin(),
                                         columns.own_heads.begin() + axis.rank(), int64_t{0});
  if (own.key.part.whole == 0) own.key.part = {1, 0, columns.heads};
  own.key.part.begin += before;
  const at::Tensor heads = moved(with_repeats(qkv, columns), {1, tokens},
                                 {2, columns.projected, &columns.segments}, axis);
  const at::Tensor own_bias = own_columns(with_repeats(bias.value, columns), columns, axis.rank());
  const at::Tensor attended = compute::causal_attention(heads, {own_bias, {}}, own);
  return moved(attended, {2, columns.attended}, {1, tokens}, axis);
}

at::Tensor causal_attention(const at::Tensor& qkv, const compute::Weight& bias,
                            const AttentionOptions& options, const Places& places) {
  if (!places.is_cut()) return compute::causal_attention(qkv, bias, options);
  return places.way == layout::ContextWay::kRing
             ? internal::ring_attention(qkv, bias, options, places)
             : internal::ulysses_attention(qkv, bias, options, places);
}

}  // namespace hanji::parallel::context
