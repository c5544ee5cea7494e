#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"

namespace hanji::cli {

/// kNote: works, but slower or otherwise than one may think. kBroken: something hanji needs fails.
enum class Verdict : uint8_t { kGood, kNote, kBroken };

/// One line of `hanji doctor`.
struct Finding {
  std::string section;  ///< "limits"
  std::string name;     ///< "open files"
  std::string value;    ///< "1024 of at most 1048576"
  Verdict verdict = Verdict::kGood;
  std::string advice = {};  ///< What to do; for everything but kGood.
};
using Findings = std::vector<Finding>;

/// "good", "note", "broken".
std::string_view name_of(Verdict verdict);

/// One page: a heading per section, in order of first appearance, advice below its line.
std::string to_text(const Findings& findings, int columns = base::kTerminalColumns);

/// {"broken": 0, "notes": 1, "findings": [{"section", "name", "value", "verdict", "advice"}]}.
std::string to_json(const Findings& findings);

/// 0, or kUsage if anything is broken.
int exit_code_of(const Findings& findings);

}  // namespace hanji::cli
