#include "hanji/plan/config.h"

namespace hanji::plan {

Engine engine_of(const Config& config) {
  if (config.comm.engine != Engine::kAuto) return config.comm.engine;
  return config.compute.device == Device::kCuda ? Engine::kNccl : Engine::kShm;
}

}  // namespace hanji::plan
