// What a process saw of a job, as `hanji verify` hands it from one process to the other.
#include "hanji/report/observed.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto run = report::observed_from_json(fuzz::text_of(data, size));
  if (!run.ok()) return 0;
  fuzz::require(report::observed_from_json(report::to_json(*run)).or_throw() == *run,
                "what was observed reads back the same");
  return 0;
}
