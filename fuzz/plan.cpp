// A plan as it travels from launcher to ranks and lies in plan.json.
#include "hanji/plan/plan.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto parsed = plan::plan_from_json(fuzz::text_of(data, size));
  if (!parsed.ok()) return 0;
  (void)plan::describe(*parsed);
  const std::string text = plan::to_json(*parsed);
  const auto again = plan::plan_from_json(text);
  fuzz::require(again.ok() && plan::to_json(*again) == text, "a plan reads back the same");
  return 0;
}
