#pragma once

#include <ATen/Parallel.h>

#include "hanji/compute/internal/row_kernels.h"

namespace hanji::compute::internal {

/// body(Rows) over all rows, divided among torch's threads at multiples of kRowsPerSum.
template <class Body>
void parallel_rows(int64_t rows, int64_t columns, const Body& body) {
  at::parallel_for(0, num_sums(rows), 1, [&](int64_t begin, int64_t end) {
    body(Rows{begin * kRowsPerSum, std::min(rows, end * kRowsPerSum), columns});
  });
}

}  // namespace hanji::compute::internal
