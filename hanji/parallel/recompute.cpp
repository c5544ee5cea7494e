#include "hanji/parallel/recompute.h"

#include "hanji/parallel/checkpointed.h"

namespace hanji::parallel {

layers::LayerScope recompute(layout::Range layers) {
  return [layers](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    if (layer < layers.begin || layer >= layers.end) return run(std::move(flow));
    return checkpointed_all(run, flow);
  };
}

}  // namespace hanji::parallel
