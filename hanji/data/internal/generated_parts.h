#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// How a generated set of `count` samples is divided: the first train, the others validate.
struct GeneratedParts {
  int64_t count = 0;
  double validation_fraction = 0;

  int64_t num_train() const {
    return static_cast<int64_t>(std::floor(static_cast<double>(count) * (1 - validation_fraction)));
  }

  /// Errors  kInvalidArgument for a part without samples, which are `samples` of the key `key`.
  Status check(std::string_view samples, std::string_view key) const {
    const int64_t train = num_train();
    if (train >= 1 && (validation_fraction == 0 || train < count)) return {};
    return base::invalid_argument(
        fmt::format("{} {} leave a part without any at a validation_fraction of {}; set more {}",
                    count, samples, validation_fraction, key));
  }
};

}  // namespace hanji::data::internal
