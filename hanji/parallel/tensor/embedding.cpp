#include "hanji/parallel/tensor/embedding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/parallel/tensor/blocks.h"

namespace hanji::parallel::tensor {
namespace {

void check_tokens(const at::Tensor& tokens, int64_t vocabulary) {
  if (tokens.numel() == 0) return;
  const auto [least, most] = at::aminmax(tokens);
  for (const int64_t token : {least.item<int64_t>(), most.item<int64_t>()}) {
    if (token >= 0 && token < vocabulary) continue;
    throw Error(base::invalid_argument(fmt::format(
        "token {} lies outside [0, {}); is the vocabulary that of the data?", token, vocabulary)));
  }
}

/// What one rank found is exact, so it may stand in any partial sum.
at::Tensor as_partials(const at::Tensor& found, const Axis& axis) {
  if (axis.num_blocks() == 1) return found;
  const at::Tensor first = found.unsqueeze(0);
  std::vector<at::Tensor> all(axis.fold().partials.size(), at::zeros_like(first));
  all[0] = first;
  return all.size() == 1 ? first : at::cat(all);
}

}  // namespace

Typed<Partial> embedding(const at::Tensor& tokens, const Parameter<Sharded<0>>& table,
                         const Axis& axis, const Extents& rows) {
  const at::Tensor mine = table.rows ? table.weight.value[0] : table.weight.value;
  const auto rows_at = [&](const at::Tensor& places) {
    return table.rows ? embedding_in_blocks(places, table.weight.value, table.rows)
                      : at::embedding(mine, places);
  };
  if (axis.degree() == 1) return Typed<Partial>(as_partials(rows_at(tokens), axis));
  if (static_cast<int>(rows.size()) != axis.degree() || rows[axis.rank()] != mine.size(0)) {
    throw Error(
        base::invalid_argument(fmt::format("embedding: rank {} of {} has {} rows, and {} extents "
                                           "are given; give the rows of each rank",
                                           axis.rank(), axis.degree(), mine.size(0), rows.size())));
  }
  check_tokens(tokens, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  const at::Tensor here = tokens - axis.own_range(rows).begin;
  const at::Tensor absent = here.lt(0).logical_or_(here.ge(mine.size(0)));
  const at::Tensor found = rows_at(here.masked_fill(absent, 0));
  return Typed<Partial>(as_partials(found.masked_fill(absent.unsqueeze(-1), 0), axis));
}

}  // namespace hanji::parallel::tensor
