#include "hanji/parallel/context/places.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/status.h"

namespace hanji::parallel::context {

using layout::ContextWay;

std::vector<layout::Range> Places::own() const {
  if (axis.num_blocks() > 1) return {axis.own_range(extents())};
  return layout::context_tokens(length, axis.rank(), axis.degree(), way);
}

std::vector<layout::Range> Places::own(layout::Range within) const {
  std::vector<layout::Range> found;
  int64_t before = 0;
  for (const layout::Range one : own()) {
    const layout::Range part{one.begin + std::max<int64_t>(0, within.begin - before),
                             std::min(one.end, one.begin + within.end - before)};
    if (part.begin < part.end) found.push_back(part);
    before += one.size();
  }
  return found;
}

Extents Places::extents() const {
  return axis.num_blocks() > 1 ? axis.extents_of(length)
                               : layout::context_extents(length, axis.degree(), way);
}

Places places_on(const Axis& axis, int64_t length, ContextWay way) {
  const int ranges = axis.degree() * (way == ContextWay::kRing ? 2 : 1);
  if (axis.degree() > 1 && length < ranges) {
    throw Error(base::invalid_argument(fmt::format(
        "a sample of {} tokens on {} ranks of cp has {} ranges under {}; each has at "
        "least one token",
        length, axis.degree(), ranges, layout::kContextWayNames[static_cast<size_t>(way)])));
  }
  return {axis, way, length};
}

at::Tensor own_tokens(const at::Tensor& whole, int64_t dim, const Places& places) {
  if (!places.is_cut()) return whole;
  std::vector<at::Tensor> parts;
  for (const layout::Range one : places.own()) {
    parts.push_back(whole.narrow(dim, one.begin, one.size()));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

at::Tensor dropout(const at::Tensor& x, double probability, const compute::DropoutKey& key,
                   const Places& places, layout::Range within) {
  if (probability == 0) return x;
  std::vector<at::Tensor> masks;
  for (const layout::Range one : places.own(within)) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[1] = one.size();
    compute::DropoutKey here = key;
    here.part = {1, one.begin, places.length};
    masks.push_back(
        compute::dropout_mask(sizes, probability, here, x.options().requires_grad(false)));
  }
  return x.mul(masks.size() == 1 ? masks[0] : at::cat(masks, 1));
}

}  // namespace hanji::parallel::context
