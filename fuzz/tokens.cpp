// Token files: the layout that a header promises lies within the file.
#include <cstring>

#include "fuzz/input.h"
#include "hanji/data/token_file.h"

namespace {

void check(const hanji::Result<hanji::data::TokenLayout>& layout, uint64_t bytes) {
  if (!layout.ok()) return;
  const uint64_t held = bytes - layout->begin;
  hanji::fuzz::require(layout->begin <= bytes, "the first token lies in the file");
  hanji::fuzz::require(layout->num_tokens <= held / size_of(layout->width),
                       "the last token lies in the file");
}

}  // namespace

/// The first 8 bytes are the size of the .bin beside an index; the rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t bin_bytes = 0;
  if (size < sizeof(bin_bytes)) return 0;
  std::memcpy(&bin_bytes, data, sizeof(bin_bytes));
  const auto file = hanji::fuzz::bytes_of(data + sizeof(bin_bytes), size - sizeof(bin_bytes));
  check(hanji::data::parse_megatron_index(file, bin_bytes), bin_bytes);
  check(hanji::data::parse_llmc(file), file.size());
  return 0;
}
