#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hanji/base/dtype.h"
#include "hanji/schedule/operation.h"

namespace hanji::shm::internal {

/// The 56 bytes of a flag line behind its sequence number:
///
///   word 0   routine 8, dtype 8, op 8, flags 8, root 8, elements 8, operation 16 (low bit first)
///   word 1   tag
///   word 2   call site 32, fingerprint of the step lists 32
///   words 3-6  payload of at most 32 bytes (flag kInLine; `elements` counts them), or
///              count; input offset; output offset; stride of the parts.
///              Of premul_sum, word 6 is the factor, and the payload 24 bytes at most
using Words = std::array<uint64_t, 7>;

inline constexpr size_t kPayloadBytes = 32;
inline constexpr size_t kPayloadBytesBesideFactor = 24;
inline constexpr int64_t kMaxElementsInLine = 255;  ///< What `elements` can hold.
inline constexpr size_t kPayloadWord = 3;
inline constexpr int64_t kPrivate = -1;  ///< The offset of a buffer outside the segment.

/// What a rank was called with, as its peers see it.
struct Descriptor {
  schedule::Routine routine = schedule::Routine::kBarrier;
  DType dtype = DType::kFloat32;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  bool in_line = false;
  bool uneven = false;  ///< Shares differ from rank to rank; the fingerprint covers them.
  int root = 0;
  uint64_t operation = 0;  ///< Only its low 16 bits travel.
  uint64_t tag = 0;
  uint32_t call_site = 0;
  uint32_t fingerprint = 0;
  int64_t count = 0;  ///< At most 255 if in_line.
  // Not sent if in_line:
  int64_t input = kPrivate;
  int64_t output = kPrivate;
  int64_t stride = 0;
  double factor = 1;  ///< Sent of premul_sum only, and instead of the stride.
};

/// The payload's words are left zero.
Words encode(const Descriptor& descriptor);
Descriptor decode(const Words& words);

/// Whether two ranks were called alike: everything but call site and addresses is equal.
inline bool same_call(const Words& a, const Words& b) {
  constexpr uint64_t kInLineBit = uint64_t{1} << 24;
  return a[0] == b[0] && a[1] == b[1] && a[2] >> 32 == b[2] >> 32 &&
         ((a[0] & kInLineBit) != 0 || a[3] == b[3]);
}

}  // namespace hanji::shm::internal
