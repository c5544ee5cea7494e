#include "hanji/layout/bucket.h"

namespace hanji::layout {

BucketPlan bucket_plan(std::span<const int64_t> sizes, int64_t element_bytes, int64_t bucket_bytes,
                       int64_t first_bucket_bytes) {
  BucketPlan plan;
  plan.flat.sizes.assign(sizes.begin(), sizes.end());
  plan.flat.offsets.resize(sizes.size());
  Bucket open;
  int64_t held_bytes = 0;
  const auto close = [&] {
    open.end = plan.flat.count;
    plan.buckets.push_back(open);
    open = Bucket{{}, plan.flat.count, plan.flat.count};
    held_bytes = 0;
  };
  for (int i = static_cast<int>(sizes.size()) - 1; i >= 0; --i) {
    open.parameters.push_back(i);
    plan.flat.offsets[i] = plan.flat.count;
    plan.flat.count += round_up(sizes[i], kAlignment);
    held_bytes += sizes[i] * element_bytes;
    if (held_bytes >= (plan.buckets.empty() ? first_bucket_bytes : bucket_bytes)) close();
  }
  if (!open.parameters.empty()) close();
  return plan;
}

}  // namespace hanji::layout
