#include "hanji/comm/transpose.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "hanji/comm/all_to_all.h"
#include "hanji/comm/linear_map.h"

namespace hanji::comm {
namespace {

[[noreturn]] void refuse_transpose(const std::string& why) {
  throw Error(base::invalid_argument("transpose: " + why));
}

int64_t sum_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

/// One way: `from` and `to` are dimensions, with what each rank has of them.
struct ShardMove {
  int64_t from = 0;
  int64_t to = 0;
  std::vector<int64_t> from_sizes;
  std::vector<int64_t> to_sizes;

  ShardMove back() const { return {to, from, to_sizes, from_sizes}; }
};

int64_t wrapped(int64_t dim, const at::Tensor& input, const char* name) {
  const int64_t result = dim < 0 ? dim + input.dim() : dim;
  if (result >= 0 && result < input.dim()) return result;
  refuse_transpose(
      fmt::format("{} is {}, and the input has {} dimensions", name, dim, input.dim()));
}

std::vector<int64_t> even_split(int64_t size, int64_t ranks) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(size / ranks + (rank < size % ranks ? 1 : 0));
  }
  return sizes;
}

void check_sizes(const ShardMove& way, const at::Tensor& input, const Group& group) {
  const auto size = static_cast<size_t>(group.size());
  if (way.from_sizes.size() != size || way.to_sizes.size() != size) {
    refuse_transpose(fmt::format("{} sizes before and {} after are given for {} ranks",
                                 way.from_sizes.size(), way.to_sizes.size(), size));
  }
  if (way.from_sizes[group.rank()] != input.size(way.from)) {
    refuse_transpose(fmt::format("the input has {} of dimension {}, and the sizes before say {}",
                                 input.size(way.from), way.from, way.from_sizes[group.rank()]));
  }
  if (sum_of(way.to_sizes) != input.size(way.to)) {
    refuse_transpose(fmt::format("sizes [{}] after do not make up the {} of dimension {}",
                                 fmt::join(way.to_sizes, ", "), input.size(way.to), way.to));
  }
}

/// Sizes of the piece of `whole` that has `from` of one dimension and `to` of the other.
std::vector<int64_t> piece_sizes(const at::Tensor& input, const ShardMove& way, int64_t from,
                                 int64_t to) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[way.from] = from;
  sizes[way.to] = to;
  return sizes;
}

/// Elements that rank i gives to rank j.
std::vector<int64_t> counts_of(const at::Tensor& input, const ShardMove& way) {
  std::vector<int64_t> counts;
  for (const int64_t from : way.from_sizes) {
    for (const int64_t to : way.to_sizes) {
      const auto sizes = piece_sizes(input, way, from, to);
      counts.push_back(
          std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()));
    }
  }
  return counts;
}

at::Tensor move_shard(const at::Tensor& input, const ShardMove& way, const Group& group,
                      std::source_location site) {
  constexpr std::string_view kCategory = "staging";
  const int64_t rank = group.rank();
  at::Tensor given = group.heap().empty({input.numel()}, input.scalar_type(), kCategory);
  int64_t next = 0;
  for (const at::Tensor& piece : input.split_with_sizes(way.to_sizes, way.to)) {
    given.narrow(0, next, piece.numel()).view(piece.sizes()).copy_(piece);
    next += piece.numel();
  }
  const auto whole = piece_sizes(input, way, sum_of(way.from_sizes), way.to_sizes[rank]);
  const int64_t elements =
      std::accumulate(whole.begin(), whole.end(), int64_t{1}, std::multiplies<>());
  at::Tensor got = group.heap().empty({elements}, input.scalar_type(), kCategory);
  all_to_all(got, given, counts_of(input, way), group, {.label = "transpose"}, site).wait();
  std::vector<at::Tensor> pieces;
  next = 0;
  for (const int64_t from : way.from_sizes) {
    const auto sizes = piece_sizes(input, way, from, way.to_sizes[rank]);
    const int64_t count =
        std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    pieces.push_back(got.narrow(0, next, count).view(sizes));
    next += count;
  }
  return at::cat(pieces, way.from);
}

}  // namespace

at::Tensor transpose(const at::Tensor& input, int64_t from_dim, int64_t to_dim, const Group& group,
                     const TransposeSizes& sizes, std::source_location call_site) {
  if (!input.defined()) refuse_transpose("the input is an undefined tensor");
  ShardMove way{wrapped(from_dim, input, "from_dim"), wrapped(to_dim, input, "to_dim"), sizes.from,
                sizes.to};
  if (way.from == way.to)
    refuse_transpose(fmt::format("from_dim and to_dim are both {}", way.from));
  if (way.from_sizes.empty()) way.from_sizes.assign(group.size(), input.size(way.from));
  if (way.to_sizes.empty()) way.to_sizes = even_split(input.size(way.to), group.size());
  check_sizes(way, input, group);
  return apply_linear(
      input, {[=](const at::Tensor& x) { return move_shard(x, way, group, call_site); },
              [=](const at::Tensor& x) { return move_shard(x, way.back(), group, call_site); }});
}

}  // namespace hanji::comm
