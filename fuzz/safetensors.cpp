// A checkpoint's tensors: whatever is accepted lies within the file, without overlap.
#include <cstdlib>

#include "fuzz/input.h"
#include "hanji/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = hanji::fuzz::bytes_of(data, size);
  const auto parsed = hanji::checkpoint::parse_safetensors(file);
  if (!parsed.ok()) return 0;
  size_t total = parsed->header.size();
  for (const auto& tensor : parsed->tensors) {
    total += tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) hanji::fuzz::touch(byte);
  }
  for (const auto& tensor : parsed->foreign) {
    total += tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) hanji::fuzz::touch(byte);
  }
  hanji::fuzz::require(total == size, "header and tensors are the whole file");
  return 0;
}
