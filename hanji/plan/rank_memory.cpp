#include "hanji/plan/rank_memory.h"

#include <algorithm>

#include "hanji/plan/server_plan.h"

namespace hanji::plan {
namespace {

constexpr int64_t kTokenBytes = 8;

int64_t product_parameters(const ModelSpec& m) {
  return 12 * m.layers * m.width * m.width + m.vocabulary * m.width;
}

}  // namespace

int64_t largest_share(const Plan& plan) {
  int64_t samples = 0;
  for (const RankShare& share : plan.shares) samples = std::max(samples, share.samples.size());
  return samples;
}

std::vector<MemoryLine> rank_memory(const Plan& plan, int64_t micro_batch, int rank) {
  const ModelSpec& model = plan.model;
  const Config& config = plan.config;
  const auto shards = shards_of(plan);
  const StableGrains grains = stable_grains(plan);
  const bool served = config.parallel.data == Sharding::kServer;
  const int64_t share = shards || served ? plan.shares[rank].samples.size() : largest_share(plan);
  const ActivationOptions options{std::min(micro_batch, share), plan.kernels.precision,
                                  config.compute.device, config.compute.recompute};
  const int64_t element = parameter_bytes(plan.kernels.precision);
  const int64_t flat = gradient_buckets(model, config.comm.bucket_bytes).flat.count * element;
  std::vector<MemoryLine> lines = {{"parameters", flat},
                                   {"gradients", num_gradient_buffers(plan) * flat},
                                   {"optimizer", 2 * flat}};
  if (shards) {
    const int64_t buffers = grains.count > 0 ? gradient_buffers(plan)[rank] : 0;
    lines = state_lines(*shards, rank % shards->ranks,
                        {.accumulates = micro_batch < share, .grain_buffers = buffers});
  }
  if (served) {
    lines = server_lines(serve_model(model, element, plan.ranks, grains.owners), rank,
                         gradient_buffers(plan)[rank], message_bytes(config.comm));
  }
  lines.push_back({"activations", activation_bytes(model, options)});
  lines.push_back({"workspace", workspace_bytes(model, options)});
  if (plan.kernels.precision == Precision::kBFloat16) {
    lines.push_back({"bf16 weights", 2 * product_parameters(model)});
  }
  // Of parameters and moments, by the rank that saves.
  if (rank == 0) lines.push_back({"checkpoint copy", 3 * flat});
  // Tokens and targets of all micro-batches of a step are read before the first one is used.
  lines.push_back({"data", 2 * share * model.block * kTokenBytes});
  return lines;
}

}  // namespace hanji::plan
