#include "hanji/parallel/tensor/axis.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/comm/prepare.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/comm/work.h"
#include "hanji/layout/part.h"

namespace hanji::parallel::tensor {
namespace {

using comm::Call;
using schedule::ReduceOp;
using schedule::Routine;

int64_t sum_of(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{0});
}

/// Elements of one row of `dim`: all other dimensions together.
int64_t elements_beside(const at::Tensor& tensor, int64_t dim) {
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) elements *= d == dim ? 1 : tensor.size(d);
  return elements;
}

/// Whether parts along `dim` lie one after another in memory.
bool is_outermost(const at::Tensor& tensor, int64_t dim) {
  return std::ranges::all_of(tensor.sizes().slice(0, dim), [](int64_t size) { return size == 1; });
}

std::vector<int64_t> with_size(const at::Tensor& tensor, int64_t dim, int64_t size) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[dim] = size;
  return sizes;
}

/// The segments of a cut, one where it has none.
Segments segments_of(Cut cut) {
  return cut.segments == nullptr ? Segments{cut.extents} : *cut.segments;
}

/// A copy in which the parts along the cut lie one after another.
at::Tensor part_after_part(const at::Tensor& tensor, Cut cut) {
  const Segments segments = segments_of(cut);
  at::Tensor flat = at::empty({tensor.numel()}, tensor.options());
  const int64_t beside = elements_beside(tensor, cut.dim);
  std::vector<at::Tensor> parts;
  std::vector<int64_t> sizes = tensor.sizes().vec();
  int64_t begin = 0;
  for (const int64_t extent : cut.extents) {
    sizes[cut.dim] = extent;
    parts.push_back(flat.narrow(0, begin, extent * beside).view(sizes));
    begin += extent * beside;
  }
  Extents filled(parts.size());
  int64_t from = 0;
  for (const Extents& segment : segments) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const int64_t size = segment[rank];
      parts[rank].narrow(cut.dim, filled[rank], size).copy_(tensor.narrow(cut.dim, from, size));
      filled[rank] += size;
      from += size;
    }
  }
  return flat;
}

/// Parts along the cut that lie one after another in `flat`, as one tensor of `sizes`.
at::Tensor joined(const at::Tensor& flat, std::vector<int64_t> sizes, Cut cut) {
  const Segments segments = segments_of(cut);
  const int64_t beside = flat.numel() / sum_of(cut.extents);
  std::vector<at::Tensor> parts(segments.size() * cut.extents.size());
  int64_t begin = 0;
  for (size_t rank = 0; rank < cut.extents.size(); ++rank) {
    sizes[cut.dim] = cut.extents[rank];
    const at::Tensor part = flat.narrow(0, begin, cut.extents[rank] * beside).view(sizes);
    begin += part.numel();
    int64_t first = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      parts[i * cut.extents.size() + rank] = part.narrow(cut.dim, first, segments[i][rank]);
      first += segments[i][rank];
    }
  }
  return at::cat(parts, cut.dim);
}

/// One count where all ranks have the same.
Extents counts_of(Extents extents, int64_t each) {
  for (int64_t& extent : extents) extent *= each;
  if (std::ranges::count(extents, extents[0]) == std::ssize(extents)) extents.resize(1);
  return extents;
}

void check_extents(const Extents& extents, int degree, int64_t size, int64_t expected) {
  if (static_cast<int>(extents.size()) == degree && size == expected) return;
  throw Error(base::invalid_argument(
      fmt::format("axis of {} ranks: extents [{}] for a tensor of {} along the cut dimension; give "
                  "one for each rank, which make up the whole",
                  degree, fmt::join(extents, ", "), size)));
}

}  // namespace

struct Axis::Calls {
  using Key = std::tuple<Routine, ReduceOp, at::ScalarType, Extents, int>;
  static constexpr size_t kMaxPrepared = 256;

  int rank = 0;
  int degree = 1;
  std::optional<comm::Group> group = {};  ///< None: nothing moves.
  std::function<void(const AxisCall&)> on_call = {};
  std::map<Key, Call> prepared = {};

  /// `copied` as AxisCall.
  void run(const Key& key, at::Tensor& output, const at::Tensor& input, int64_t copied = 0) {
    start(key, output, input, copied).wait();
  }

  comm::Work start(const Key& key, at::Tensor& output, const at::Tensor& input, int64_t copied) {
    if (!group) {
      pretend(key, output, input, copied);
      return {};
    }
    auto found = prepared.find(key);
    if (found == prepared.end()) {
      // All ranks have made the same calls, so all drop theirs together.
      if (prepared.size() == kMaxPrepared) prepared.clear();
      const auto& [routine, op, dtype, counts, lane] = key;
      found =
          prepared.emplace(key, comm::prepare(routine, dtype, counts, *group, {.op = op})).first;
    }
    return found->second.start(output, input);
  }

  /// Finite values, in memory that is touched as a collective's.
  void pretend(const Key& key, at::Tensor& output, const at::Tensor& input, int64_t copied) const {
    const auto& [routine, op, dtype, counts, lane] = key;
    on_call({routine, op, dtype, counts, degree, 1, copied});
    if (output.sizes() == input.sizes()) {
      output.copy_(input);
    } else {
      output.zero_();
    }
  }

  at::Tensor reduced(const at::Tensor& input, ReduceOp op) {
    at::Tensor output = at::empty_like(input);
    run({Routine::kAllReduce, op, input.scalar_type(), {input.numel()}, 0}, output, input);
    return output;
  }
};

struct Axis::Blocks {
  schedule::GrainTree tree;
  std::map<int64_t, std::shared_ptr<const schedule::StepList>> steps = {};  ///< By count.

  /// The sum of all partials, one a row, by the tree; overwrites them.
  at::Tensor sum(const at::Tensor& partials) const {
    std::vector<at::Tensor> stack;
    for (const int index : tree.tree) {
      if (index >= 0) {
        stack.push_back(partials[index]);
        continue;
      }
      stack[stack.size() - 2].add_(stack.back());
      stack.pop_back();
    }
    return stack[0].clone();
  }

  const std::shared_ptr<const schedule::StepList>& steps_of(int64_t count) {
    auto& list = steps[count];
    if (!list) {
      list = std::make_shared<const schedule::StepList>(schedule::tree_all_reduce(tree, count));
    }
    return list;
  }
};

Axis::Axis() = default;

Axis::Axis(const comm::Group& group)
    : calls_(group.size() == 1
                 ? nullptr
                 : std::make_shared<Calls>(Calls{group.rank(), group.size(), group})) {}

Axis Axis::silent(int rank, int degree, std::function<void(const AxisCall&)> on_call) {
  if (degree == 1) return {};
  return Axis(std::make_shared<Calls>(Calls{rank, degree, std::nullopt, std::move(on_call)}));
}

Axis Axis::in_blocks(int blocks) const {
  if (blocks > 1 && blocks < degree()) {
    throw Error(base::invalid_argument(fmt::format(
        "axis of {} ranks in {} blocks: a rank owns at least one; take {} blocks or more", degree(),
        blocks, degree())));
  }
  Axis axis = *this;
  axis.blocks_.reset();
  if (blocks <= 1) return axis;
  axis.blocks_ = std::make_shared<Blocks>(
      Blocks{schedule::grain_tree(blocks, layout::block_owners(blocks, degree()))});
  return axis;
}

int Axis::degree() const { return calls_ ? calls_->degree : 1; }
int Axis::rank() const { return calls_ ? calls_->rank : 0; }
int Axis::num_blocks() const { return blocks_ ? static_cast<int>(blocks_->tree.num_grains) : 1; }
const schedule::Fold& Axis::fold() const { return blocks_->tree.ranks[rank()]; }

Extents Axis::extents_of(int64_t size, int64_t unit) const {
  return layout::part_sizes(size, unit, degree(), num_blocks());
}

layout::Range Axis::own_range(const Extents& extents) const {
  const int64_t whole = sum_of(extents);
  check_extents(extents, degree(), whole, whole);
  const int64_t begin = std::accumulate(extents.begin(), extents.begin() + rank(), int64_t{0});
  return {begin, begin + extents[rank()]};
}

at::Tensor Axis::sum(const at::Tensor& terms) const {
  return calls_ ? calls_->reduced(terms.contiguous(), ReduceOp::kSum) : terms;
}

at::Tensor Axis::sum_of_blocks(const at::Tensor& partials) const {
  if (!calls_) return partials.select(0, 0);
  at::Tensor output = at::empty(partials.sizes().slice(1), partials.options());
  if (!calls_->group) {
    calls_->on_call({Routine::kTreeReduce,
                     ReduceOp::kSum,
                     partials.scalar_type(),
                     {output.numel()},
                     degree(),
                     num_blocks()});
    return output.copy_(partials[0]);
  }
  const at::Tensor rows = partials.contiguous().view({partials.size(0), output.numel()});
  at::Tensor flat = output.view({-1});
  comm::tree_all_reduce(rows, flat, blocks_->steps_of(output.numel()), *calls_->group).wait();
  return output;
}

at::Tensor Axis::scatter_sum_of_blocks(const at::Tensor& partials, int64_t dim,
                                       const Extents& extents) const {
  if (!calls_) return partials.select(0, 0);
  const int64_t d = dim < 0 ? dim + partials.dim() : dim + 1;
  check_extents(extents, degree(), partials.size(d), sum_of(extents));
  std::vector<at::Tensor> given;
  for (const at::Tensor& part : partials.split_with_sizes(extents, d)) {
    given.push_back(part.reshape({-1}));
  }
  const int64_t beside = elements_beside(partials[0], d - 1);
  Extents counts;
  for (const schedule::Fold& from : blocks_->tree.ranks) {
    for (const int64_t extent : extents) {
      counts.push_back(std::ssize(from.partials) * extent * beside);
    }
  }
  const int64_t own = extents[rank()] * beside;
  const int64_t all = std::ssize(blocks_->tree.partials);
  at::Tensor taken = at::empty({all * own}, partials.options());
  calls_->run({Routine::kAllToAll, ReduceOp::kSum, partials.scalar_type(), counts_of(counts, 1), 0},
              taken, at::cat(given), partials.numel());
  return blocks_->sum(taken.view({all, own})).view(with_size(partials[0], d - 1, extents[rank()]));
}

at::Tensor Axis::maximum(const at::Tensor& values) const {
  return calls_ ? calls_->reduced(values.contiguous(), ReduceOp::kMax) : values;
}

at::Tensor Axis::gather(const at::Tensor& part, int64_t dim, const Extents& extents) const {
  if (!calls_) return part;
  const at::Tensor mine = part.contiguous();
  const int64_t d = dim < 0 ? dim + mine.dim() : dim;
  const Extents each = extents.empty() ? Extents(degree(), mine.size(d)) : extents;
  check_extents(each, degree(), mine.size(d), each.at(rank()));
  const int64_t beside = elements_beside(mine, d);
  at::Tensor flat = at::empty({sum_of(each) * beside}, mine.options());
  const bool in_order = is_outermost(mine, d);
  calls_->run({Routine::kAllGather, ReduceOp::kSum, mine.scalar_type(), counts_of(each, beside), 0},
              flat, mine, in_order ? 0 : flat.numel());
  if (in_order) return flat.view(with_size(mine, d, sum_of(each)));
  return joined(flat, mine.sizes().vec(), {d, each});
}

at::Tensor Axis::scatter_sum(const at::Tensor& terms, int64_t dim, const Extents& extents) const {
  if (!calls_) return terms;
  const int64_t d = dim < 0 ? dim + terms.dim() : dim;
  const Extents each = extents.empty() ? extents_of(terms.size(d)) : extents;
  check_extents(each, degree(), terms.size(d), sum_of(each));
  const bool in_order = is_outermost(terms, d);
  const at::Tensor flat = in_order ? terms.contiguous() : part_after_part(terms, {d, each});
  const Extents counts = counts_of(each, elements_beside(terms, d));
  at::Tensor part = at::empty(with_size(terms, d, each[rank()]), terms.options());
  calls_->run({Routine::kReduceScatter, ReduceOp::kSum, terms.scalar_type(), counts, 0}, part, flat,
              in_order ? 0 : flat.numel());
  return part;
}

at::Tensor Axis::own_part(const at::Tensor& whole, int64_t dim, const Extents& extents) const {
  if (!calls_) return whole;
  const int64_t d = dim < 0 ? dim + whole.dim() : dim;
  const Extents each = extents.empty() ? extents_of(whole.size(d)) : extents;
  check_extents(each, degree(), whole.size(d), sum_of(each));
  const layout::Range own = own_range(each);
  return whole.narrow(d, own.begin, own.size()).contiguous();
}

at::Tensor Axis::transpose(const at::Tensor& part, Cut from, Cut to) const {
  if (!calls_) return part;
  check_extents(from.extents, degree(), part.size(from.dim), from.extents.at(rank()));
  check_extents(to.extents, degree(), part.size(to.dim), sum_of(to.extents));
  const int64_t beside = elements_beside(part, from.dim) / part.size(to.dim);
  Extents counts;
  for (const int64_t given : from.extents) {
    for (const int64_t taken : to.extents) counts.push_back(given * taken * beside);
  }
  const bool gives_in_order = is_outermost(part, to.dim) && to.segments == nullptr;
  const at::Tensor given =
      gives_in_order ? part.contiguous().view({-1}) : part_after_part(part, to);
  std::vector<int64_t> sizes = with_size(part, from.dim, sum_of(from.extents));
  sizes[to.dim] = to.extents[rank()];
  at::Tensor flat = at::empty({sum_of(from.extents) * sizes[to.dim] * beside}, part.options());
  at::Tensor whole = flat.view(sizes);
  const bool takes_in_order = is_outermost(whole, from.dim) && from.segments == nullptr;
  const int64_t copied = (gives_in_order ? 0 : given.numel()) + (takes_in_order ? 0 : flat.numel());
  calls_->run({Routine::kAllToAll, ReduceOp::kSum, part.scalar_type(), counts_of(counts, 1), 0},
              flat, given, copied);
  return takes_in_order ? whole : joined(flat, std::move(sizes), from);
}

at::Tensor Axis::from_next(const at::Tensor& mine, at::IntArrayRef sizes,
                           const Extents& elements) const {
  return begin_from_next(mine, sizes, elements, 0).wait();
}

Axis::Passing Axis::begin_from_next(const at::Tensor& mine, at::IntArrayRef sizes,
                                    const Extents& elements, int lane) const {
  if (!calls_) return {mine, mine};
  check_extents(elements, degree(), mine.numel(), elements.at(rank()));
  const int ranks = degree();
  Extents counts(static_cast<size_t>(ranks) * ranks);
  for (int from = 0; from < ranks; ++from) {
    counts[from * ranks + (from + ranks - 1) % ranks] = elements[from];
  }
  Passing passing{mine.contiguous().view({-1}), at::empty(sizes, mine.options())};
  at::Tensor flat = passing.next.view({-1});
  passing.work = std::make_shared<comm::Work>(
      calls_->start({Routine::kAllToAll, ReduceOp::kSum, mine.scalar_type(), counts, lane}, flat,
                    passing.mine, 0));
  return passing;
}

at::Tensor Axis::Passing::wait() const {
  if (work) work->wait();
  return next;
}

at::Tensor part_of(const at::Tensor& whole, const layout::Placement& placement, int index,
                   int degree) {
  if (degree == 1 || !placement.is_cut()) return whole;
  const int64_t dim = placement.dim;
  std::vector<at::Tensor> parts;
  for (const layout::Range range :
       layout::parts_of(placement, whole.size(dim), index, degree).or_throw()) {
    parts.push_back(whole.narrow(dim, range.begin, range.size()));
  }
  return at::cat(parts, dim);
}

}  // namespace hanji::parallel::tensor
