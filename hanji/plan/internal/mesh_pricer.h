#pragma once

#include <map>
#include <vector>

#include "hanji/plan/mesh_choices.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan::internal {

/// How the ranks of a data coordinate compute.
struct CutOfModel {
  int64_t pp = 1, cp = 1, tp = 1;
  bool recompute = false, sequence = false;
  ContextWay context = ContextWay::kAuto;  ///< Of cp above 1, decided.
  auto operator<=>(const CutOfModel&) const = default;
};

/// The ways in which ranks of mesh.cp attend to the tokens of `model`; without cp, kAuto alone. Beside tp
/// all ranks have as many tokens and heads, as in `hanji train`. Empty: it cannot be cut so.
std::vector<ContextWay> context_ways(const ModelSpec& model, const MeshConfig& mesh);

/// Prices steps of a GPT, as choose_meshes() says. The query must outlive it.
class MeshPricer {
 public:
  explicit MeshPricer(const CapacityQuery& query)
      : query_(query), spec_(*query.model.gpt), of_stage_(query) {
    of_stage_.model.facts = of_stage_.model.recomputed = {};
    of_stage_.recompute = false;  // a stage's facts are those of its cut
  }

  /// Cost    linear in layers, and once for each cut in their square by the stages.
  MeshChoice price(const MeshConfig& mesh, Sharding data, const CutOfModel& cut);

 private:
  /// One stage: what its rank has and does for a micro-batch.
  struct Stage {
    ModelFacts model;
    double seconds = 0;
    double call_bytes = 0;  ///< Sent by the calls within its layers.
    bool needs_less =
        false;  ///< Than the stage before: it has as much, and fewer micro-batches in flight.
  };
  /// Ranks of one group, `stride` apart.
  struct Peers {
    int64_t ranks = 1, stride = 1;
  };
  /// Of a rank, for the calls within a layer.
  struct Moved {
    double bytes = 0, seconds = 0;
  };
  using Stages = std::vector<Stage>;

  int64_t ranks_on_host(const Peers& peers) const;
  double sum_seconds(double bytes, const Peers& peers) const;
  double exchange_seconds(double bytes, const Peers& peers, ContextWay way) const;
  double stream_bytes(const CutOfModel& cut) const;
  Moved moved_by_tp(const LayerFacts& layer, int64_t tp, double stream) const;
  Moved moved_by_cp(const CutOfModel& cut) const;
  double computing_seconds(const LayerFacts& layer) const;
  const Stages& stages_of(const CutOfModel& cut);
  Stages make_stages(const CutOfModel& cut) const;
  void add_pipeline(const Stages& stages, int64_t micro_batches, const CutOfModel& cut,
                    MeshChoice& choice) const;
  void add_data(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const;
  void add_update(int64_t elements, MeshChoice& choice) const;
  const Stage& add_memory(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const;

  const CapacityQuery& query_;
  const ModelSpec spec_;
  CapacityQuery of_stage_;  ///< Of which a copy costs nothing: without the facts of the model.
  std::map<CutOfModel, Stages> stages_;
};

/// Whether stages gather what they compute with in each micro-batch.
inline bool gathers_in_stages(const MeshChoice& choice) {
  return choice.mesh.pp > 1 && cuts_parameters(choice.data);
}

/// Ranks with samples of their own, or groups of them.
inline int64_t coordinates_of(const MeshConfig& mesh) { return mesh.dp * mesh.fsdp; }

/// Ranks that share out one state: those of cp, which have terms of the same gradients, too.
inline int64_t shards_of(const MeshConfig& mesh, Sharding data) {
  return cuts_states(data) ? mesh.fsdp * mesh.cp : 1;
}

}  // namespace hanji::plan::internal
