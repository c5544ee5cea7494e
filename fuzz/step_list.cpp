// A collective's step list: what reads as one can be checked, and reads back the same.
#include "fuzz/input.h"
#include "hanji/schedule/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto parsed = schedule::from_json(fuzz::text_of(data, size));
  if (!parsed.ok()) return 0;
  const std::string text = schedule::to_json(*parsed);
  const auto again = schedule::from_json(text);
  fuzz::require(again.ok() && schedule::to_json(*again) == text, "a step list reads back the same");
  return 0;
}
