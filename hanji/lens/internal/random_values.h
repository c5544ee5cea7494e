#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hanji/layout/range.h"
#include "hanji/lens/internal/tape.h"

namespace hanji::lens {

/// A distribution that can be drawn at any element.
struct Distribution {
  enum class Kind { kUniform, kNormal, kBernoulli };
  Kind kind = Kind::kUniform;
  double a = 0, b = 1;  ///< [a, b); mean and deviation; a: the probability of 1.
};

/// What a recorded random operation draws; none if it takes more than one word per element.
std::optional<Distribution> distribution_of(const Entry& entry);

/// Elements [range) of a draw, as a tensor of one dimension.
///
/// Result  element e depends on (key, e) alone: on no other element, thread or range.
at::Tensor random_values(const Distribution& distribution, uint64_t key, layout::Range range,
                         at::ScalarType dtype);

/// The key of a construction's random operation.
uint64_t draw_key(const Tape& tape, const Entry& entry);

}  // namespace hanji::lens
