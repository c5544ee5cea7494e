#include "hanji/plan/config.h"

#include "hanji/plan/internal/words.h"

namespace hanji::plan {

std::string_view name_of(TokenFormat value) { return word_of(value); }
std::string_view name_of(VocabularyKind value) { return word_of(value); }
std::string_view name_of(Images value) { return word_of(value); }
std::string_view name_of(LearningRateSchedule value) { return word_of(value); }
std::string_view name_of(Bits value) { return word_of(value); }
std::string_view name_of(NanPolicy value) { return word_of(value); }
std::string_view name_of(Device value) { return word_of(value); }
std::string_view name_of(Engine value) { return word_of(value); }
std::string_view name_of(Place value) { return word_of(value); }

Engine engine_of(const Config& config) {
  if (config.comm.engine != Engine::kAuto) return config.comm.engine;
  return config.compute.device == Device::kCuda ? Engine::kNccl : Engine::kShm;
}

}  // namespace hanji::plan
