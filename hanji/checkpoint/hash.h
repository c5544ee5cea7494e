#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hanji/base/checksum.h"
#include "hanji/checkpoint/named_tensor.h"

namespace hanji::checkpoint {

/// The certificate of a training state: equal states have equal hashes, whatever plan made them.
///
/// SHA-256 over the parameters, then the optimizer's tensors. A group is its count, then its
/// tensors sorted by the bytes of their names; a tensor is name, dtype ("float32"), number of
/// dimensions, lengths and bytes. Counts and lengths are u64; name and dtype follow their length.
/// All little-endian, so that no two states share one stream of bytes.
///
/// Order   begin_group(), then for each tensor begin_tensor() and its bytes, in as many pieces as
///         they come in. A copy goes on by itself.
/// Cost    one pass over the bytes; holds none of them.
class StateHash {
 public:
  void begin_group(size_t num_tensors);
  void begin_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape);
  void add(std::span<const std::byte> bytes) { hash_.update(bytes); }
  /// 64 lower-case hexadecimal digits of all that was added so far.
  std::string hex() const { return hash_.hex(); }

 private:
  void add_number(uint64_t value);
  void add_text(std::string_view text);

  base::Sha256 hash_;
};

/// Of the parameters alone, and of all.
struct StateHashes {
  std::string parameters;
  std::string state;
};

/// Both hashes of tensors given in any order, in one pass.
StateHashes state_hashes(std::span<const SavedTensor> parameters,
                         std::span<const SavedTensor> optimizer);

/// The hash of tensors given in any order.
std::string state_hash(std::span<const SavedTensor> parameters,
                       std::span<const SavedTensor> optimizer);
std::string state_hash(std::span<const NamedTensor> parameters,
                       std::span<const NamedTensor> optimizer);

}  // namespace hanji::checkpoint
