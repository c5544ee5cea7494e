#pragma once

#include <cstdint>

#include "hanji/compute/internal/number.h"

namespace hanji::compute::internal {

/// The numbers of an update, rounded to what elements are computed in.
struct AdamWNumbers {
  float divisor;
  float kept;    ///< Share of a parameter, after weight decay.
  float weight;  ///< Weight of the gradient in the first moment.
  float beta2;
  float rest2;  ///< 1 - beta2.
  float root;   ///< Root of the bias correction of the second moment.
  float epsilon;
  float step;  ///< Negative.
};

struct AdamWElements {
  float* parameter;
  const float* gradient;
  float* first;
  float* second;
  BFloat16* rounded;  ///< May be null.
};

/// Updates elements begin..end.
void adamw(int64_t begin, int64_t end, const AdamWElements& elements, const AdamWNumbers& numbers);

}  // namespace hanji::compute::internal
