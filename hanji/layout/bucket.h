#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/layout/flat.h"

namespace hanji::layout {

/// Gradients that travel together: one contiguous range of the flat buffer.
struct Bucket {
  std::vector<int> parameters;  ///< Indices of registration, in the order they lie in the bucket.
  int64_t begin = 0;            ///< Elements of the flat layout, padding included.
  int64_t end = 0;

  bool operator==(const Bucket&) const = default;
};

struct BucketPlan {
  FlatLayout flat;              ///< offsets and sizes by index of registration.
  std::vector<Bucket> buckets;  ///< In launch order; contiguous, covering [0, flat.count).

  bool operator==(const BucketPlan&) const = default;
};

/// Groups parameters in reverse order of registration, which is about the order in which backward
/// finishes their gradients, so bucket 0 is ready first.
///
/// Units   sizes in elements; a bucket closes once it holds its bytes (padding not counted), so a
///         larger parameter closes one alone. The first cap is for bucket 0, to start early.
/// Order   element_bytes, bucket_bytes and first_bucket_bytes >= 1.
/// Source  Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3.
BucketPlan bucket_plan(std::span<const int64_t> sizes, int64_t element_bytes, int64_t bucket_bytes,
                       int64_t first_bucket_bytes);

}  // namespace hanji::layout
