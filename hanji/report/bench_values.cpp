#include "hanji/report/bench_values.h"

#include <algorithm>
#include <cstring>

namespace hanji::report {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

constexpr int64_t kRows = 64;  // of a tile: 64 times 997 elements, about a second-level cache

// Up to it every whole number is a value of the type.
int64_t exact_limit(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return int64_t{1} << 53;  // the table has doubles
    case DType::kFloat32: return int64_t{1} << 24;
    case DType::kInt32: return INT32_MAX;
    case DType::kFloat16: return 2048;
    case DType::kBFloat16: return 256;
    case DType::kUInt8: return 255;
    case DType::kInt8: return 127;
    case DType::kBool: return 1;
    default: return 8;  // floats of eight bits
  }
}

int64_t mixed(int64_t i, int rank, int64_t range) { return (7 * i + 31 * rank) % range; }

int64_t summand(int64_t i, int rank, int ranks, int64_t limit) {
  const int64_t range = std::min<int64_t>(limit / ranks, 1000);
  return range < 2 ? rank == i % ranks : mixed(i, rank, range);
}

// Their sum is a multiple of the ranks.
int64_t averaged(int64_t i, int rank, int ranks, int64_t limit) {
  if (ranks > limit) return i % 2;
  const int64_t range = std::clamp<int64_t>(limit / ranks - 1, 1, 1000);
  return i % range + (rank == i % ranks ? ranks : 0);
}

int64_t input_value(const BenchCase& call, int rank, int64_t i) {
  const int64_t limit = exact_limit(call.dtype);
  if (!reduces(call.routine)) {
    return limit > 100'000 ? i + 1000 * rank : mixed(i, rank, limit + 1);
  }
  switch (call.op) {
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum: return summand(i, rank, call.ranks, limit);
    case ReduceOp::kAvg: return averaged(i, rank, call.ranks, limit);
    case ReduceOp::kProd:
      if (limit == 1) return mixed(i, rank, 2);
      return (i + rank) % (call.ranks + 1) == 0 ? 2 : 1;
    default: return mixed(i, rank, std::min<int64_t>(limit + 1, 251));
  }
}

int64_t combine(ReduceOp op, int64_t left, int64_t right) {
  switch (op) {
    case ReduceOp::kMin: return std::min(left, right);
    case ReduceOp::kMax: return std::max(left, right);
    case ReduceOp::kProd: return left * right;
    case ReduceOp::kBitAnd: return left & right;
    case ReduceOp::kBitOr: return left | right;
    case ReduceOp::kBitXor: return left ^ right;
    default: return left + right;
  }
}

}  // namespace

std::vector<double> value_table(const BenchCase& call) {
  std::vector<double> table;
  for (int rank = 0; rank < call.ranks; ++rank) {
    for (int64_t i = 0; i < kValuePeriod; ++i) {
      table.push_back(static_cast<double>(input_value(call, rank, i)));
    }
  }
  for (int64_t i = 0; i < kValuePeriod; ++i) {
    int64_t result = input_value(call, 0, i);
    for (int rank = 1; rank < call.ranks; ++rank) {
      result = combine(call.op, result, input_value(call, rank, i));
    }
    table.push_back(static_cast<double>(call.op == ReduceOp::kAvg ? result / call.ranks : result));
  }
  return table;
}

std::vector<ExpectedPart> expected_parts(const BenchCase& call, int rank) {
  const int64_t count = count_of(call);
  const int reduced = call.ranks;
  if (buffers_of(call, rank).output == 0) return {};
  switch (call.routine) {
    case Routine::kAllReduce:
    case Routine::kReduce: return {{0, count, reduced, 0}};
    case Routine::kReduceScatter: return {{0, count, reduced, rank * count}};
    case Routine::kBroadcast:
    case Routine::kSend: return {{0, count, call.root, 0}};
    case Routine::kScatter: return {{0, count, call.root, rank * count}};
    default: break;
  }
  std::vector<ExpectedPart> parts;
  const bool from_all = call.routine == Routine::kAllToAll;
  for (int from = 0; from < call.ranks; ++from) {
    parts.push_back({from * count, count, from, from_all ? rank * count : 0});
  }
  return parts;
}

ValueTile::ValueTile(std::span<const std::byte> row, size_t element_bytes)
    : element_bytes_(element_bytes) {
  for (int64_t i = 0; i < kRows; ++i) bytes_.insert(bytes_.end(), row.begin(), row.end());
}

void ValueTile::fill(std::byte* to, int64_t count, int64_t phase) const {
  int64_t position = phase % kValuePeriod;
  while (count > 0) {
    const int64_t piece = std::min(count, kRows * kValuePeriod - position);
    const size_t bytes = static_cast<size_t>(piece) * element_bytes_;
    std::memcpy(to, bytes_.data() + static_cast<size_t>(position) * element_bytes_, bytes);
    to += bytes;
    count -= piece;
    position = 0;
  }
}

int64_t ValueTile::num_wrong(const std::byte* values, int64_t count, int64_t phase) const {
  int64_t wrong = 0;
  int64_t position = phase % kValuePeriod;
  while (count > 0) {
    const int64_t piece = std::min(count, kRows * kValuePeriod - position);
    const size_t bytes = static_cast<size_t>(piece) * element_bytes_;
    const std::byte* due = bytes_.data() + static_cast<size_t>(position) * element_bytes_;
    if (std::memcmp(values, due, bytes) != 0) {
      for (size_t at = 0; at < bytes; at += element_bytes_) {
        wrong += std::memcmp(values + at, due + at, element_bytes_) != 0;
      }
    }
    values += bytes;
    count -= piece;
    position = 0;
  }
  return wrong;
}

}  // namespace hanji::report
