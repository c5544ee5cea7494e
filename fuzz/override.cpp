// KEY=VALUE of the command line, one per line.
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "hanji/plan/load_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  std::string_view text = fuzz::text_of(data, size);
  std::vector<plan::Override> overrides;
  while (!text.empty() && overrides.size() < 16) {
    const size_t end = std::min(text.find('\n'), text.size());
    overrides.push_back({std::string(text.substr(0, end))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto loaded = plan::parse_config("", "job.toml", overrides);
  for (const auto& mistake : loaded.mistakes) {
    fuzz::require(mistake.to_string().find('\n') == std::string::npos, "a message is one line");
  }
  return 0;
}
