// A job's TOML file: mistakes or a configuration, which prints as one that has none.
#include "fuzz/input.h"
#include "hanji/plan/load_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const auto loaded = plan::parse_config(fuzz::text_of(data, size), "job.toml");
  for (const auto& mistake : loaded.mistakes) (void)mistake.to_string();
  if (!loaded.mistakes.empty()) return 0;
  const auto again = plan::parse_config(plan::print_config(loaded), "again.toml");
  fuzz::require(again.mistakes.empty(), "--print-config prints a configuration without mistakes");
  return 0;
}
