#include "hanji/plan/mesh_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "hanji/base/units.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/internal/mesh_pricer.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {
namespace {

using internal::coordinates_of;

/// By which a GPT's layers are cut.
constexpr std::array<std::string_view, 2> kGptAxes = {"tp", "cp"};

/// Ways to share samples and states among the data coordinates of `whole`, which are its dp.
std::vector<std::pair<MeshConfig, Sharding>> data_ways(const CapacityQuery& query,
                                                       const MeshConfig& whole) {
  const int64_t coordinates = whole.dp;
  MeshConfig cut = whole;
  cut.dp = 1;
  cut.fsdp = coordinates;
  std::vector<std::pair<MeshConfig, Sharding>> ways = {{whole, Sharding::kReplicas}};
  if (coordinates * whole.cp == 1) return ways;
  ways.emplace_back(cut, Sharding::kZero1);
  ways.emplace_back(cut, Sharding::kZero3);
  const int64_t on_host = std::max<int64_t>(1, query.ranks_per_host / (whole.tp * whole.cp));
  const int64_t in_host = std::gcd(coordinates, on_host);
  if (in_host > 1 && in_host < coordinates) {
    MeshConfig hybrid = whole;
    hybrid.dp = coordinates / in_host;
    hybrid.fsdp = in_host;
    ways.emplace_back(hybrid, Sharding::kHybrid);
  }
  return ways;
}

/// Why a model or batch cannot be cut so, and what would do; none: it can.
struct MeshRefusal {
  std::string why, instead;
};

/// Of cp, beside a tp that the model has heads for.
std::vector<MeshRefusal> context_refusals(const CapacityQuery& query, const MeshConfig& mesh) {
  const ModelSpec& m = *query.model.gpt;
  if (!internal::context_ways(m, mesh).empty()) return {};
  const int64_t ranks = query.ranks.ranks, kv_heads = m.kv_heads > 0 ? m.kv_heads : m.heads;
  const auto refusal = [](std::string why, const std::vector<int64_t>& nearest) {
    return std::vector<MeshRefusal>{
        {std::move(why), fmt::format("take {}", fmt::join(nearest, " or "))}};
  };
  if (mesh.tp > 1 && kv_heads % mesh.tp != 0) {
    return refusal(
        fmt::format("tp that does not divide the {}, beside cp", base::counted(kv_heads, "head")),
        layout::nearest_divisors(std::gcd(ranks, kv_heads), mesh.tp));
  }
  const int64_t by_heads = std::min(m.heads / mesh.tp, m.block);
  const int64_t by_tokens = m.dropout == 0 ? m.block / 2 : 0;  // a ring drops no weights
  if (mesh.cp > std::max(by_heads, by_tokens)) {
    return refusal(
        fmt::format(
            "cp above the heads of a rank{}",
            by_tokens > 0 ? fmt::format(" and half of {}", base::counted(m.block, "token")) : ""),
        layout::nearest_divisors(ranks, mesh.cp, std::max(by_heads, by_tokens)));
  }
  const int64_t ranges = mesh.cp <= by_heads ? m.block : m.block / 2;
  return refusal(
      fmt::format("cp that does not divide {}, beside tp", base::counted(ranges, "token")),
      layout::nearest_divisors(std::gcd(ranks, ranges), mesh.cp));
}

std::vector<MeshRefusal> mesh_refusals(const CapacityQuery& query, const MeshConfig& mesh) {
  const ModelSpec& m = *query.model.gpt;
  std::vector<MeshRefusal> found;
  const auto check = [&](const char* axis, int64_t degree, int64_t most, const char* unit) {
    if (degree <= most) return;
    const auto nearest = layout::nearest_divisors(query.ranks.ranks, degree, most);
    found.push_back({fmt::format("{} above the {}", axis, base::counted(most, unit)),
                     fmt::format("take {}", fmt::join(nearest, " or "))});
  };
  check("tp", mesh.tp, m.kv_heads > 0 ? m.kv_heads : m.heads, "head");
  check("pp", mesh.pp, m.layers + 2, "layer");
  if (mesh.tp <= m.heads) {
    for (MeshRefusal& one : context_refusals(query, mesh)) found.push_back(std::move(one));
  }
  const int64_t passes = query.global_batch / query.micro_batch;
  const int64_t coordinates = coordinates_of(mesh);
  if (query.global_batch % query.micro_batch != 0 || passes % coordinates != 0) {
    const auto nearest = layout::nearest_divisors(std::max<int64_t>(1, passes), coordinates);
    found.push_back({fmt::format("dp x fsdp that does not divide {} micro-batches of {}", passes,
                                 query.micro_batch),
                     fmt::format("take {}", fmt::join(nearest, " or "))});
  }
  return found;
}

Status check_mesh_query(const CapacityQuery& query) {
  std::vector<std::string> wrong;
  if (!query.model.gpt) {
    wrong.push_back(
        fmt::format("--meshes knows how axes cut a GPT, and {} is none", query.model.name));
  }
  if (query.device.flops == 0) {
    std::vector<std::string> names;
    for (const DeviceSpec& one : known_devices()) names.push_back(one.name);
    wrong.push_back(
        fmt::format("--meshes prices steps, and the rates of {} are not known; take one of {}",
                    query.device.name, fmt::join(names, ", ")));
  }
  if (query.global_batch < 1) wrong.push_back("--global-batch is below 1");
  return wrong.empty() ? Status()
                       : base::invalid_argument(fmt::format("{}", fmt::join(wrong, "; ")));
}

std::string about_meshes(const CapacityQuery& query) {
  const DeviceSpec& d = query.device;
  return fmt::format(
      "meshes     of {} on {} x {}, {} a host\n"
      "batch      {} a step, micro-batches of {}\n"
      "rates      products at {:.3g} TF/s ({:.0f} % of the fastest published), {:.0f} GB/s\n"
      "           within a host, {:.0f} GB/s for each rank between hosts\n"
      "train      has pp, cp and tp on CPUs, in stages cp and tp within a host; none on\n"
      "           GPUs yet\n",
      query.model.name, query.ranks.ranks, d.name,
      std::min(query.ranks.ranks, query.ranks_per_host),
      base::counted(query.global_batch, "sample"), query.micro_batch,
      d.flops * kProductShare / 1e12, 100 * kProductShare, d.link_rate * kLinkShare / 1e9,
      query.network_rate / 1e9);
}

/// Takes the fastest variant of every mesh.
class Search {
 public:
  explicit Search(const CapacityQuery& query) : query_(query), pricer_(query) {}

  void add(const std::vector<std::pair<MeshConfig, Sharding>>& ways) {
    bool fits = false;
    for (const auto& [mesh, data] : ways) {
      const std::vector<MeshChoice> variants = variants_of(mesh, data);
      const auto fitting = std::ranges::find_if(variants, [this](const MeshChoice& one) {
        return total_bytes(one.rank) <= query_.device.memory_bytes;
      });
      fits |= fitting != variants.end();
      if (fitting != variants.end()) table_.fitting.push_back(*fitting);
      for (const MeshChoice& one : variants) keep_smallest(one);
    }
    table_.num_too_large += fits ? 0 : 1;
  }
  void refuse(const MeshRefusal& refusal) { ++table_.refused[refusal.why]; }

  MeshTable finish() && {
    sort_meshes(table_.fitting);
    table_.about = about_meshes(query_);
    if (table_.num_too_large > 0) table_.smallest = smallest_;
    return std::move(table_);
  }

 private:
  std::vector<MeshChoice> variants_of(const MeshConfig& mesh, Sharding data) {
    std::vector<MeshChoice> variants;
    for (const ContextWay way : internal::context_ways(*query_.model.gpt, mesh)) {
      for (const bool recompute : {false, true}) {
        if (query_.recompute && !recompute) continue;
        for (const bool sequence : {false, true}) {
          if (sequence && mesh.tp == 1) continue;
          variants.push_back(
              pricer_.price(mesh, data, {mesh.pp, mesh.cp, mesh.tp, recompute, sequence, way}));
        }
      }
    }
    sort_meshes(variants);
    return variants;
  }

  void keep_smallest(const MeshChoice& one) {
    if (total_bytes(one.rank) <= query_.device.memory_bytes) return;
    if (!smallest_ || total_bytes(one.rank) < total_bytes(smallest_->rank)) smallest_ = one;
  }

  const CapacityQuery& query_;
  internal::MeshPricer pricer_;
  MeshTable table_;
  std::optional<MeshChoice> smallest_;
};

/// The product of all degrees that a GPT has but dp; too many ranks, where it does not fit.
int64_t ranks_beside_dp(MeshConfig mesh) {
  mesh.axial = 1;
  return std::min(ranks_per_data_coordinate(mesh), int64_t{1} << 31) * mesh.fsdp;
}

/// Of degrees that divide the ranks one by one: what is wrong with their product, and what would do; of
/// those beside dp the largest gives way.
std::optional<std::string> product_mistake(int64_t ranks, const MeshConfig& mesh) {
  const int64_t product = ranks_beside_dp(mesh);
  if (product * mesh.dp == ranks) return {};
  if (ranks % product == 0) {
    return fmt::format("the degrees make {} of {}; take dp {}",
                       base::counted(product * mesh.dp, "rank"), ranks, ranks / product);
  }
  const AxisKey* largest = nullptr;
  for (const AxisKey& one : kAxisKeys) {
    if (one.axis == "dp" || one.axis == "axial") continue;
    if (largest == nullptr || mesh.*one.degree > mesh.*largest->degree) largest = &one;
  }
  const int64_t degree = mesh.*largest->degree, rest = product / degree;
  const std::string why = fmt::format("the degrees beside dp make {}, which does not divide {}",
                                      product, base::counted(ranks, "rank"));
  if (ranks % rest != 0) return why + "; leave out one";
  return fmt::format("{}; take {} {}", why, largest->axis,
                     fmt::join(layout::nearest_divisors(ranks / rest, degree), " or "));
}

/// All mistakes of a mesh whose open degrees are decided.
std::vector<std::string> mistakes_of(const CapacityQuery& query, const MeshConfig& mesh) {
  const int64_t ranks = query.ranks.ranks;
  std::vector<std::string> wrong;
  if (mesh.axial > 1) {
    wrong.push_back("axial cuts pairs, and a GPT has none; leave it out");
  }
  bool divides = true;
  for (const AxisKey& one : kAxisKeys) {
    if (ranks % (mesh.*one.degree) == 0) continue;
    divides = false;
    wrong.push_back(
        fmt::format("{} {} does not divide {}; take {}", one.axis, mesh.*one.degree,
                    base::counted(ranks, "rank"),
                    fmt::join(layout::nearest_divisors(ranks, mesh.*one.degree), " or ")));
  }
  if (divides) {
    if (auto mistake = product_mistake(ranks, mesh)) wrong.push_back(*std::move(mistake));
  }
  for (const MeshRefusal& one : mesh_refusals(query, mesh)) {
    wrong.push_back(fmt::format("{}; {}", one.why, one.instead));
  }
  return wrong;
}

/// The ways that a mesh names, whose fsdp says that states are cut.
Status add_only(const CapacityQuery& query, MeshConfig mesh, Search& search) {
  if (mesh.fsdp == kAuto) mesh.fsdp = 1;
  if (mesh.dp == kAuto) {
    mesh.dp = std::max<int64_t>(1, query.ranks.ranks / ranks_beside_dp(mesh));
  }
  const std::vector<std::string> wrong = mistakes_of(query, mesh);
  if (!wrong.empty()) {
    return base::invalid_argument(fmt::format("--mesh: {}", fmt::join(wrong, "; ")));
  }
  std::vector<std::pair<MeshConfig, Sharding>> ways;
  if (mesh.fsdp == 1) ways.emplace_back(mesh, Sharding::kReplicas);
  if (mesh.fsdp > 1 && mesh.dp > 1) ways.emplace_back(mesh, Sharding::kHybrid);
  if (mesh.fsdp * mesh.cp > 1 && mesh.dp == 1) {
    ways.emplace_back(mesh, Sharding::kZero1);
    ways.emplace_back(mesh, Sharding::kZero3);
  }
  search.add(ways);
  return {};
}

}  // namespace

Result<MeshTable> choose_meshes(const CapacityQuery& asked, const std::optional<MeshConfig>& only) {
  CapacityQuery query = asked;
  if (query.global_batch == 0) query.global_batch = query.ranks.ranks * query.micro_batch;
  HANJI_RETURN_IF_ERROR(check_mesh_query(query));
  Search search(query);
  if (only) {
    HANJI_RETURN_IF_ERROR(add_only(query, *only, search));
    return std::move(search).finish();
  }
  for (const MeshConfig& mesh : all_meshes(query.ranks.ranks, kGptAxes)) {
    const std::vector<MeshRefusal> refused = mesh_refusals(query, mesh);
    if (refused.empty()) {
      search.add(data_ways(query, mesh));
    } else {
      search.refuse(refused.front());
    }
  }
  return std::move(search).finish();
}

std::vector<MeshConfig> all_meshes(int64_t ranks, std::span<const std::string_view> axes) {
  std::vector<MeshConfig> meshes = {{.dp = ranks, .fsdp = 1}};
  // Of the axes that take ranks from dp, the last one's degree changes first.
  for (const std::string_view axis : {"axial", "cp", "pp", "tp"}) {
    const bool is_cut = axis == "pp" || std::ranges::find(axes, axis) != axes.end();
    const AxisKey& key = *std::ranges::find(kAxisKeys, axis, &AxisKey::axis);
    std::vector<MeshConfig> cut;
    for (const MeshConfig& mesh : meshes) {
      for (int64_t degree = 1; degree <= (is_cut ? mesh.dp : 1); ++degree) {
        if (mesh.dp % degree != 0) continue;
        cut.push_back(mesh);
        cut.back().dp = mesh.dp / degree;
        cut.back().*key.degree = degree;
      }
    }
    meshes = std::move(cut);
  }
  return meshes;
}

MeshChoice choice_of(const Plan& plan) {
  MeshChoice choice;
  choice.mesh = plan.config.mesh;
  choice.data = plan.config.parallel.data;
  choice.recompute = plan.config.compute.recompute;
  choice.sequence = plan.config.parallel.sequence;
  if (gathers_parameters(plan)) choice.reshard = plan.config.parallel.reshard;
  choice.context = plan.config.parallel.context;
  choice.rank = plan.memory;
  if (choice.mesh.pp > 1) choice.bubble = pipeline_timeline(plan, 0).bubble();
  const Prediction& p = plan.predicted;
  choice.seconds = p.step_seconds;
  choice.load = plan.load;
  const auto mean = [&](int64_t bytes) { return static_cast<double>(bytes) / plan.ranks; };
  choice.stage_bytes = mean(p.stage_bytes_per_step);
  choice.layer_bytes = mean(p.layer_bytes_per_step);
  choice.data_bytes = mean(p.wire_bytes_per_step) - choice.stage_bytes - choice.layer_bytes;
  return choice;
}

void sort_meshes(std::vector<MeshChoice>& meshes) {
  std::ranges::stable_sort(meshes, {}, [](const MeshChoice& one) {
    return std::pair(one.seconds, total_bytes(one.rank));
  });
}

}  // namespace hanji::plan
