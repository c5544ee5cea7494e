// A pipeline's schedule from a file: what reads as one can be checked, and reads back the same.
#include "fuzz/input.h"
#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto parsed = schedule::pipeline_from_csv(fuzz::text_of(data, size));
  if (!parsed.ok()) return 0;
  (void)schedule::check(*parsed, 1).ok();
  const std::string text = schedule::to_csv(*parsed);
  const auto again = schedule::pipeline_from_csv(text);
  fuzz::require(again.ok() && again->ranks == parsed->ranks, "a pipeline reads back the same");
  return 0;
}
