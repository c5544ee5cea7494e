#pragma once

#include <cstdint>

#include "hanji/data/internal/jpeg_reader.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data::internal {

/// How a sample takes part of its partner: outside of `box` it keeps `keep` of itself, inside nothing.
struct SampleMix {
  float keep = 1;
  PixelBox box = {};  ///< Width 0: none.
  float label = 1;    ///< What the sample keeps of its own classes.

  bool changes_nothing() const { return keep == 1 && box.width == 0; }
};

/// `key` decides all that is random.
SampleMix draw_mix(const plan::ImageStages& stages, int64_t size, uint64_t key);

/// Mixes two samples, each as it was before, of [3, size, size].
void mix_samples(const SampleMix& of_a, const SampleMix& of_b, int64_t size, float* a, float* b);

}  // namespace hanji::data::internal
