#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/json.h"

namespace hanji::report {

/// A tensor [rows, columns, channels] whose shard moves from rows to columns: comm::transpose().
struct TransposeShape {
  int ranks = 4;
  int64_t rows = 256;
  int64_t columns = 256;
  int64_t channels = 128;  ///< Elements of a row and column.
  int64_t element_bytes = 4;
};

/// What it moves; of ranks with different parts the one that has most.
struct TransposeBytes {
  int64_t tensor = 0;    ///< Bytes of all ranks together.
  int64_t before = 0;    ///< Bytes of a rank's rows.
  int64_t after = 0;     ///< Bytes of a rank's columns.
  int64_t sent = 0;      ///< By a rank: its rows without the block of its own columns.
  int64_t gathered = 0;  ///< Received by a rank if all_gather made every row whole instead.
};

/// Rows and columns are shared as evenly as can be, lower ranks first. Order: ranks <= rows and columns.
TransposeBytes transpose_bytes(const TransposeShape& shape);

/// Two grids of blocks, rows by columns of ranks: each names the rank that has it.
std::string transpose_text(const TransposeShape& shape);
/// The shape, the bytes, and for each rank its range of rows before and of columns after.
base::Json transpose_json(const TransposeShape& shape);
/// The two grids as a standalone SVG, a colour for each rank.
std::string transpose_svg(const TransposeShape& shape);

/// The most ranks that are drawn.
inline constexpr int kMaxTransposedRanks = 8;

}  // namespace hanji::report
