// The bounded JSON parser below every other one.
#include "hanji/base/json.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto parsed = base::parse_json(text); parsed.ok()) {
    fuzz::require(base::parse_json(parsed->dump()).ok(), "what was parsed can be parsed again");
  }
  return 0;
}
