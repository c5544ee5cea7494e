// The bounded JSON parser below every other one, and the rates that a machine keeps.
#include "hanji/base/json.h"
#include "fuzz/input.h"
#include "hanji/cost/rates.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto parsed = base::parse_json(text); parsed.ok()) {
    const auto again = base::parse_json(base::dump(*parsed));
    fuzz::require(again.ok() && *again == *parsed, "what was parsed is parsed again");
  }
  if (const auto rates = cost::rates_from_json(text); rates.ok()) {
    fuzz::require(cost::rates_from_json(cost::to_json(*rates)).or_throw() == *rates,
                  "rates read back the same");
  }
  return 0;
}
