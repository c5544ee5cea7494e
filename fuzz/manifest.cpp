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
  for (const checkpoint::FileRecord& file : parsed->files) {
    for (const checkpoint::TensorRecord& tensor : file.tensors) {
      const auto bytes = checkpoint::dense_bytes(tensor.dtype, tensor.shape);
      const auto form = checkpoint::dense_bytes(tensor.dtype, tensor.form().shape);
      fuzz::require(bytes && form && *form <= *bytes, "a tensor has the elements of its runs");
      const auto width = static_cast<int64_t>(base::size_of(tensor.dtype));
      fuzz::require(tensor.elements.extent().end <= *bytes / width, "runs end within the tensor");
    }
  }
  const auto again = checkpoint::to_text(*parsed);
  fuzz::require(again.ok(), "what was read can be written");
  const auto twice = checkpoint::parse_manifest(*again);
  fuzz::require(twice.ok() && *checkpoint::to_text(*twice) == *again,
                "what was written reads back the same");
  return 0;
}
