#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/plan/capacity.h"

namespace hanji::plan {

struct Plan;

/// A mesh, what else is decided with it, and a step on it.
struct MeshChoice {
  MeshConfig mesh;  ///< No degree is kAuto.
  Sharding data = Sharding::kReplicas;
  bool recompute = false;
  bool sequence = false;  ///< parallel.sequence, on tp.
  /// Where it decides bytes: of parameters that are cut and not shared in a host's memory.
  Reshard reshard = Reshard::kAuto;
  ContextWay context = ContextWay::kAuto;  ///< On cp the one that was priced.
  std::vector<MemoryLine> rank;            ///< Of the rank that needs most; categories of Capacity.
  double bubble = 0;       ///< Time beyond what the longest stage computes, over the latter.
  double seconds = 0;      ///< Of a step.
  double stage_bytes = 0;  ///< Sent in a step by a rank: flows and their gradients,
  double data_bytes = 0;   ///< gradients, and parameters that are cut, over dp and fsdp,
  double layer_bytes = 0;  ///< and within layers, over cp, tp and axial.
  double load = 0;         ///< Load under which it was timed here, as Plan::load.
};

/// The meshes of a model, and what keeps others out.
struct MeshTable {
  std::string about;  ///< For output: the model, the ranks, and what prices come from.
  std::vector<MeshChoice> fitting;     ///< Best first: by seconds, then by bytes of the rank.
  std::optional<MeshChoice> smallest;  ///< Of those that do not fit, the one that needs least.
  int num_too_large = 0;               ///< Meshes of which no variant fits.
  std::map<std::string, int>
      refused;            ///< Why meshes cannot cut the model or the batch, and how many.
  std::string not_tried;  ///< Axes that no mesh has, and why; empty: all were tried.
};

/// The degrees of `mesh` above 1, as --mesh takes them: "pp=2,tp=4".
std::string to_string(const MeshConfig& mesh);

/// What `hanji train` takes: "--mesh pp=2,fsdp=2 --set parallel.data=zero1".
std::string flags_of(const MeshChoice& choice);
/// Of them the keys with their values: "parallel.data=zero1".
std::vector<std::string> assignments_of(const MeshChoice& choice);

/// Every pp x coordinates of so many ranks, dp being the coordinates, and with each of tp, cp and axial that is among
/// `axes`, by which the model's layers are cut.
std::vector<MeshConfig> all_meshes(int64_t ranks, std::span<const std::string_view> axes);

/// The mesh of a plan, as it is predicted. Bytes are those of the mean rank.
MeshChoice choice_of(const Plan& plan);

/// By seconds, then by bytes of the rank.
void sort_meshes(std::vector<MeshChoice>& meshes);

/// Prices every mesh of query.ranks ranks in pp x dp x fsdp x cp x tp: of each the fastest of its variants
/// that fits (gradients by all_reduce, zero1, zero3 or hsdp; by ulysses or a ring of cp; with recompute and
/// sequence parallelism or without). States are shared out over fsdp and cp together.
/// In stages, whose gradients are whole until the last micro-batch, zero3 and hsdp gather the parameters of
/// a layer in each micro-batch; zero2 and whole stages would need what zero1 needs.
///
/// Result  memory of a stage: its states as parallel.data cuts them, activations of the micro-batches that
///         1F1B has in flight, workspace, the two largest units where parameters are cut; of stages all
///         gradients.
///         Seconds: products at kProductShare of the device's fastest, element-wise bytes at the rate of
///         its memory, calls of cp and tp in line; the longest stage's micro-batches and the others' first;
///         gradients and parameters after them, unhidden; the update. A call within a host runs at
///         kLinkShare of the link, over several at the network's rate for each rank.
/// Cost    some 10^3 prices, each linear in layers: well below a second for 10^4 ranks.
/// Errors  invalid_argument: the device's rates or the model's placements are not known, or `only` is a
///         mesh that is refused: why, and the nearest that is not.
/// Source  activations: Korthikanti et al., arXiv 2205.05198, section 4; bytes: Narayanan et al.,
///         arXiv 2104.04473, section 3; those of cp: layout::context_calls().
Result<MeshTable> choose_meshes(const CapacityQuery& query,
                                const std::optional<MeshConfig>& only = {});

/// Share of the fastest product's rate that the products of a step reach, and of a link's that calls reach:
/// those of A100 and H100, arXiv 2104.04473 table 1 and NCCL's all_reduce on 8 devices.
inline constexpr double kProductShare = 0.75;
inline constexpr double kLinkShare = 0.78;

/// A line for each mesh, which ends with the flags to paste; then why others are missing.
std::string describe(const MeshTable& table, int columns = base::kTerminalColumns);
std::string to_json(const MeshTable& table);

}  // namespace hanji::plan
