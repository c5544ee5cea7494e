// What excludes each other of ranks that share out the tokens of samples.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "hanji/base/units.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/layout/part.h"
#include "hanji/plan/context.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/model_spec.h"

namespace hanji::plan {
namespace {

bool are_alike(const std::vector<int64_t>& sizes) {
  return std::ranges::count(sizes, sizes[0]) == std::ssize(sizes);
}

/// Heads of keys and values of each rank of "tp".
std::vector<int64_t> heads_of_tp(const Config& c, int64_t kv_heads) {
  const auto tp = static_cast<int>(c.mesh.tp), blocks = static_cast<int>(c.train.cuts.features);
  return layout::part_sizes(kv_heads, 1, tp, blocks < tp ? 1 : blocks);
}

/// What to set in place of a ring, which is there for want of heads or by its name.
std::string without_ring(const Config& c) {
  const int64_t most = std::max<int64_t>(1, resolve_model(c.model).heads / c.mesh.tp);
  if (c.mesh.cp <= most) return "parallel.context = \"ulysses\"";
  if (c.parallel.context == ContextWay::kAuto) return fmt::format("mesh.cp = {}", most);
  return fmt::format("mesh.cp = {} with parallel.context = \"{}\"", most,
                     most > 1 ? "ulysses" : "auto");
}

/// Ranks of a layer that "tp" and "cp" cut move as much as each other: their calls are counted on one.
void check_context_with_tp(const Config& c, Found& found) {
  const ModelSpec model = resolve_model(c.model);
  const int64_t cp = c.mesh.cp, tp = c.mesh.tp;
  const auto refuse = [&](std::string_view key, std::string message, std::string suggestion) {
    found.push_back({{key, "mesh.cp", "mesh.tp"},
                     fmt::format("mesh.cp = {} with mesh.tp = {} {}", cp, tp, message),
                     std::move(suggestion)});
  };
  const int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  const bool rings = context_way(c) == ContextWay::kRing;
  if (tp > kv_heads || cp > model.block) return;  // refused already
  if (const int64_t ranges = rings ? 2 * cp : cp; model.block % ranges != 0) {
    refuse("model.block",
           fmt::format("gives every rank as many tokens, but model.block is {}", model.block),
           fmt::format("set model.block = {}", (model.block / ranges + 1) * ranges));
  } else if (const int64_t blocks = c.train.cuts.tokens;
             blocks > cp && !are_alike(context_extents(c))) {
    refuse("train.cuts.tokens",
           fmt::format("gives every rank as many tokens, but train.cuts.tokens is {}", blocks),
           fmt::format("set train.cuts.tokens = {}", blocks / cp * cp));
  }
  if (kv_heads % tp != 0) {
    const auto nearest = layout::nearest_divisors(kv_heads, tp);
    refuse("model.heads",
           fmt::format("gives every rank of tp as many heads, but {} is {}",
                       model.kv_heads > 0 ? "model.kv_heads" : "model.heads", kv_heads),
           fmt::format("set mesh.tp = {}", fmt::join(nearest, " or ")));
  } else if (!are_alike(heads_of_tp(c, kv_heads))) {
    refuse("train.cuts.features",
           fmt::format("gives every rank of tp as many heads, but train.cuts.features is {}",
                       c.train.cuts.features),
           fmt::format("set train.cuts.features = {}", c.train.cuts.features / tp * tp));
  } else if (!rings && model.heads / tp < cp) {
    refuse("model.heads",
           fmt::format("leaves {} of {} for the ranks of cp", model.heads / tp,
                       base::counted(model.heads, "head")),
           fmt::format("set mesh.cp = {}, or parallel.context = \"ring\"", model.heads / tp));
  }
}

/// Each rank has whole blocks of tokens, and computes its heads as one process does.
void check_stable_context(const Config& c, Found& found) {
  const ModelSpec model = resolve_model(c.model);
  const int64_t cp = c.mesh.cp, tokens = c.train.cuts.tokens;
  const auto refuse = [&](std::string_view key, std::string why, std::string suggestion) {
    found.push_back({{key, "mesh.cp", "train.bits"},
                     fmt::format("mesh.cp = {} with train.bits = stable {}", cp, why),
                     std::move(suggestion)});
  };
  if (context_way(c) == ContextWay::kRing) {
    refuse("parallel.context",
           "has the sums of one process, but parallel.context = ring merges parts of a softmax in "
           "an order that follows the ranks",
           fmt::format("set {}, or train.bits = \"run\"", without_ring(c)));
  }
  if (tokens < cp) {
    refuse("train.cuts.tokens",
           fmt::format("computes tokens in {} or more, but train.cuts.tokens is {}",
                       base::counted(cp, "block"), tokens),
           fmt::format("set train.cuts.tokens = {} or more, or train.bits = \"run\"", cp));
  }
  const int64_t kv_heads = std::max<int64_t>(1, model.kv_heads / c.mesh.tp);
  if (model.kv_heads > 0 && kv_heads < cp && context_way(c) != ContextWay::kRing) {
    refuse("model.kv_heads",
           fmt::format("computes heads of keys and values on one rank each, but model.kv_heads is "
                       "{} on mesh.tp = {}",
                       model.kv_heads, c.mesh.tp),
           fmt::format("set mesh.cp = {}, or train.bits = \"run\"", kv_heads));
  }
  if (c.parallel.sequence) {
    refuse("parallel.sequence",
           "adds up gradients over the tokens of one axis, but parallel.sequence cuts them by "
           "mesh.tp too",
           "remove parallel.sequence, or set train.bits = \"run\"");
  }
}

}  // namespace

void check_context(const Config& c, Found& found) {
  if (c.mesh.cp == 1) {
    if (c.parallel.context == ContextWay::kAuto) return;
    found.push_back({{"parallel.context", "mesh.cp"},
                     fmt::format("parallel.context = {} is how the ranks of mesh.cp attend, which "
                                 "is 1",
                                 name_of(c.parallel.context)),
                     "set mesh.cp, or remove parallel.context"});
    return;
  }
  const auto axes = family_of(c.model).cut_axes;
  if (std::ranges::find(axes, "cp") == axes.end()) return;
  const auto refuse = [&](std::string_view key, std::string_view why, std::string suggestion) {
    found.push_back(
        {{key, "mesh.cp"}, fmt::format("mesh.cp = {} {}", c.mesh.cp, why), std::move(suggestion)});
  };
  if (context_way(c) == ContextWay::kRing && c.model.dropout > 0) {
    refuse("model.dropout",
           fmt::format("merges parts of a softmax in a ring, which drops no weights, but "
                       "model.dropout is {}",
                       c.model.dropout),
           fmt::format("set model.dropout = 0, or {}", without_ring(c)));
  }
  if (c.train.bits == Bits::kStable) check_stable_context(c, found);
  if (c.mesh.tp > 1) check_context_with_tp(c, found);
  if (c.parallel.data == Sharding::kServer) {
    refuse("parallel.data",
           "adds up terms of a gradient on several ranks, but parallel.data = server pushes whole "
           "ones",
           "set parallel.data = \"zero1\"");
  }
  check_shares_memory(c, "mesh.cp", c.mesh.cp, "samples", found);
}

}  // namespace hanji::plan
