#pragma once

#include <span>
#include <string>

#include "hanji/checkpoint/named_tensor.h"

namespace hanji::checkpoint {

/// The certificate of a training state: equal states have equal hashes, whatever plan made them.
///
/// SHA-256 over the parameters, then the optimizer's tensors. A group is its count, then its
/// tensors sorted by the bytes of their names; a tensor is name, dtype ("float32"), number of
/// dimensions, lengths and bytes. Counts and lengths are u64; name and dtype follow their length.
/// All little-endian, so that no two states share one stream of bytes.
/// Result  64 lower-case hexadecimal digits.
/// Cost    one pass over the bytes, nothing copied.
std::string state_hash(std::span<const NamedTensor> parameters,
                       std::span<const NamedTensor> optimizer);

}  // namespace hanji::checkpoint
