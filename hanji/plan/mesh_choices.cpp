#include "hanji/plan/mesh_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "hanji/layout/mesh_shape.h"
#include "hanji/plan/internal/mesh_pricer.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {
namespace {

using internal::coordinates_of;

/// Ways to share samples and states among so many data coordinates.
std::vector<std::pair<MeshConfig, Sharding>> data_ways(const CapacityQuery& query, int64_t pp,
                                                       int64_t tp, int64_t coordinates) {
  const MeshConfig whole{.pp = pp, .dp = coordinates, .fsdp = 1, .tp = tp};
  const MeshConfig cut{.pp = pp, .dp = 1, .fsdp = coordinates, .tp = tp};
  std::vector<std::pair<MeshConfig, Sharding>> ways = {{whole, Sharding::kReplicas}};
  if (coordinates == 1) return ways;
  ways.emplace_back(cut, Sharding::kZero1);
  ways.emplace_back(cut, Sharding::kZero3);
  const int64_t in_host = std::gcd(coordinates, std::max<int64_t>(1, query.ranks_per_host / tp));
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

std::vector<MeshRefusal> mesh_refusals(const CapacityQuery& query, const MeshConfig& mesh) {
  const ModelSpec& m = *query.model.gpt;
  std::vector<MeshRefusal> found;
  const auto check = [&](int64_t degree, int64_t most, const char* why) {
    if (degree <= most) return;
    const auto nearest = layout::nearest_divisors(query.ranks.ranks, degree, most);
    found.push_back(
        {fmt::format(fmt::runtime(why), most), fmt::format("take {}", fmt::join(nearest, " or "))});
  };
  check(mesh.tp, m.kv_heads > 0 ? m.kv_heads : m.heads, "tp above the {} heads");
  check(mesh.pp, m.layers + 2, "pp above the {} layers");
  const int64_t passes = query.global_batch / query.micro_batch;
  const int64_t coordinates = coordinates_of(mesh);
  if (query.global_batch % (coordinates * query.micro_batch) != 0) {
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
      "batch      {} samples a step, micro-batches of {}\n"
      "rates      products at {:.3g} TF/s ({:.0f} % of the fastest published), {:.0f} GB/s\n"
      "           within a host, {:.0f} GB/s for each rank between hosts\n"
      "train      pp and tp run on CPUs, tp within a host; not on GPUs in hanji train yet\n",
      query.model.name, query.ranks.ranks, d.name,
      std::min(query.ranks.ranks, query.ranks_per_host), query.global_batch, query.micro_batch,
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
    for (const bool recompute : {false, true}) {
      if (query_.recompute && !recompute) continue;
      for (const bool sequence : {false, true}) {
        if (sequence && mesh.tp == 1) continue;
        variants.push_back(pricer_.price(mesh, data, {mesh.pp, mesh.tp, recompute, sequence}));
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

/// All mistakes of a mesh whose open degrees are decided.
std::vector<std::string> mistakes_of(const CapacityQuery& query, const MeshConfig& mesh) {
  const int64_t ranks = query.ranks.ranks;
  std::vector<std::string> wrong;
  if (mesh.cp > 1 || mesh.axial > 1) {
    wrong.push_back("cp and axial are not priced here; leave them out");
  }
  bool divides = true;
  for (const AxisKey& one : kAxisKeys) {
    if (ranks % (mesh.*one.degree) == 0) continue;
    divides = false;
    wrong.push_back(
        fmt::format("{} {} does not divide {} ranks; take {}", one.axis, mesh.*one.degree, ranks,
                    fmt::join(layout::nearest_divisors(ranks, mesh.*one.degree), " or ")));
  }
  if (divides && mesh.pp * mesh.dp * mesh.fsdp * mesh.tp != ranks) {
    wrong.push_back(fmt::format("the degrees do not make {} ranks; leave out dp", ranks));
  }
  for (const MeshRefusal& one : mesh_refusals(query, mesh)) {
    wrong.push_back(fmt::format("{}; {}", one.why, one.instead));
  }
  return wrong;
}

/// The ways that a mesh names, whose fsdp says that states are cut.
Status add_only(const CapacityQuery& query, MeshConfig mesh, Search& search) {
  if (mesh.fsdp == kAuto) mesh.fsdp = 1;
  const int64_t others = mesh.pp * mesh.fsdp * mesh.tp;
  if (mesh.dp == kAuto) mesh.dp = std::max<int64_t>(1, query.ranks.ranks / others);
  const std::vector<std::string> wrong = mistakes_of(query, mesh);
  if (!wrong.empty()) {
    return base::invalid_argument(fmt::format("--mesh: {}", fmt::join(wrong, "; ")));
  }
  std::vector<std::pair<MeshConfig, Sharding>> ways;
  if (mesh.fsdp == 1) {
    ways.emplace_back(mesh, Sharding::kReplicas);
  } else if (mesh.dp > 1) {
    ways.emplace_back(mesh, Sharding::kHybrid);
  } else {
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
  for (const MeshConfig& mesh : all_meshes(query.ranks.ranks)) {
    const std::vector<MeshRefusal> refused = mesh_refusals(query, mesh);
    if (refused.empty()) {
      search.add(data_ways(query, mesh.pp, mesh.tp, mesh.dp));
    } else {
      search.refuse(refused.front());
    }
  }
  return std::move(search).finish();
}

std::vector<MeshConfig> all_meshes(int64_t ranks, std::span<const std::string_view> axes) {
  std::vector<MeshConfig> meshes;
  const int64_t most = std::ranges::find(axes, "cp") == axes.end() ? 1 : ranks;
  for (int64_t cp = 1; cp <= most; ++cp) {
    for (int64_t pp = 1; pp <= ranks / cp; ++pp) {
      for (int64_t tp = 1; tp <= ranks / cp / pp; ++tp) {
        if (ranks % (cp * pp * tp) != 0) continue;
        meshes.push_back({.pp = pp, .dp = ranks / cp / pp / tp, .fsdp = 1, .cp = cp, .tp = tp});
      }
    }
  }
  return meshes;
}

MeshChoice choice_of(const Plan& plan) {
  MeshChoice choice;
  choice.mesh = plan.config.mesh;
  choice.data = plan.config.parallel.data;
  choice.recompute = plan.config.compute.recompute;
  choice.sequence = plan.config.parallel.sequence;
  if (!plan.config.parallel.share_memory) choice.reshard = plan.config.parallel.reshard;
  choice.context = plan.config.parallel.context;
  choice.rank = plan.memory;
  if (choice.mesh.pp > 1) choice.bubble = pipeline_timeline(plan, 0).bubble();
  const Prediction& p = plan.predicted;
  choice.seconds = p.step_seconds;
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
