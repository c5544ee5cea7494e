// Costs of collectives as a machine keeps them, with the stamp of when and where they were fitted.
#include "fuzz/input.h"
#include "hanji/cost/stored.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto fitted = cost::fitted_from_json(text); fitted.ok()) {
    fuzz::require(cost::fitted_from_json(cost::to_json(*fitted)).or_throw() == *fitted,
                  "fitted costs read back the same");
    for (const cost::Correction& one : fitted->corrections) {
      const double factor =
          cost::correction_of(*fitted, one.routine, one.algorithm, one.dtype, 1e6);
      fuzz::require(factor > 0, "a correction is above 0 at every size");
    }
  } else if (const auto stored = cost::stored_from_json(text); stored.ok()) {
    (void)cost::why_stale(*stored, {}, 1'800'000'000);
    (void)cost::describe(*stored);
    fuzz::require(cost::stored_from_json(cost::to_json(*stored)).or_throw() == *stored,
                  "stored costs read back the same");
  }
  return 0;
}
