// A manifest as it lies on the disk, and with its checksum made right, which no mutation would do.
#include <fmt/format.h>

#include <string>

#include "fuzz/input.h"
#include "hanji/base/checksum.h"
#include "hanji/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  std::string text(fuzz::text_of(data, size));
  (void)checkpoint::parse_manifest(text).ok();
  const uint64_t checksum = base::xxh3(std::as_bytes(std::span(text)));
  text += fmt::format(",\n \"checksum\": \"{:016x}\"\n}}\n", checksum);
  const auto parsed = checkpoint::parse_manifest(text);
  if (!parsed.ok()) return 0;
  const auto again = checkpoint::to_text(*parsed);
  fuzz::require(again.ok(), "what was read can be written");
  const auto twice = checkpoint::parse_manifest(*again);
  fuzz::require(twice.ok() && *checkpoint::to_text(*twice) == *again,
                "what was written reads back the same");
  return 0;
}
