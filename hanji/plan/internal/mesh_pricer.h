#pragma once

#include <map>
#include <vector>

#include "hanji/plan/mesh_choices.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan::internal {

/// How the ranks of a data coordinate compute.
struct CutOfModel {
  int64_t pp = 1, tp = 1;
  bool recompute = false, sequence = false;
  auto operator<=>(const CutOfModel&) const = default;
};

/// Prices steps of a GPT, as choose_meshes() says. The query must outlive it.
class MeshPricer {
 public:
  explicit MeshPricer(const CapacityQuery& query) : query_(query), spec_(*query.model.gpt) {}

  /// Cost    linear in layers, and once for each cut in their square by the stages.
  MeshChoice price(const MeshConfig& mesh, Sharding data, const CutOfModel& cut);

 private:
  /// One stage: what its rank has and does for a micro-batch.
  struct Stage {
    ModelFacts model;
    double seconds = 0;
    double call_bytes = 0;  ///< Sent by the calls within its layers.
  };
  /// Ranks of one group, `stride` apart.
  struct Peers {
    int64_t ranks = 1, stride = 1;
  };
  using Stages = std::vector<Stage>;

  double sum_seconds(double bytes, const Peers& peers) const;
  double stream_bytes() const;
  double layer_seconds(const LayerFacts& layer, int64_t tp) const;
  const Stages& stages_of(const CutOfModel& cut);
  Stages make_stages(const CutOfModel& cut) const;
  void add_pipeline(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const;
  void add_data(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const;
  void add_update(int64_t elements, MeshChoice& choice) const;
  const Stage& add_memory(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const;

  const CapacityQuery& query_;
  const ModelSpec spec_;
  std::map<CutOfModel, Stages> stages_;
};

/// Whether stages gather what they compute with in each micro-batch.
inline bool gathers_in_stages(const MeshChoice& choice) {
  return choice.mesh.pp > 1 && cuts_parameters(choice.data);
}

/// Ranks with samples of their own, or groups of them.
inline int64_t coordinates_of(const MeshConfig& mesh) { return mesh.dp * mesh.fsdp; }

}  // namespace hanji::plan::internal
