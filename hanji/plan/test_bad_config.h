#pragma once

#include <gmock/gmock.h>

#include <initializer_list>

#include "hanji/plan/load_config.h"

namespace hanji::plan::test_plan {

/// One mistake, or one meeting of mistakes.
struct BadConfig {
  const char* name;
  const char* toml;
  std::vector<Override> overrides;
  std::vector<std::string> expected;  ///< All messages, in order.
};

using BadConfigs = std::vector<BadConfig>;

/// Each gets its messages and no other; every mistake names its place and fits one line.
inline void expect_messages(std::initializer_list<BadConfigs (*)()> pieces) {
  for (const auto piece : pieces) {
    for (const BadConfig& bad : piece()) {
      const LoadedConfig loaded = parse_config(bad.toml, "run.toml", bad.overrides);
      std::vector<std::string> messages;
      for (const ConfigMistake& mistake : loaded.mistakes) {
        messages.push_back(mistake.to_string());
        EXPECT_NE(mistake.origin.source, "default") << bad.name;
        EXPECT_EQ(messages.back().find('\n'), std::string::npos) << bad.name;
        EXPECT_LT(messages.back().size(), 260u) << bad.name;
      }
      EXPECT_THAT(messages, testing::ElementsAreArray(bad.expected)) << bad.name;
      EXPECT_EQ(to_status(loaded.mistakes).code(), Code::kInvalidArgument) << bad.name;
    }
  }
}

}  // namespace hanji::plan::test_plan
