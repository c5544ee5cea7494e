#include <memory>

#include "hanji/base/status.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/device_table.h"

namespace hanji::cli {

void add_explain_device(Verb explain_verb) {
  constexpr std::string_view kListed = "h100";
  for (const std::string& word : plan::device_words()) {
    const Verb verb = explain_verb.add_verb(
        word, word == kListed
                  ? "What a device has and what that means for a step: its memory, "
                    "rates, links; so v100, a100-80, h200, b200, mi300x, gaudi3 and all "
                    "of `plan --device`"
                  : "");
    auto as_json = std::make_shared<bool>(false);
    verb.add_flag("--json", as_json.get(), "for programs");
    verb.on_chosen([=] {
      const auto devices = plan::devices_named(word).or_throw();
      print_text(
          *as_json ? report::device_json(devices) : report::device_table(devices, output_columns()),
          *as_json);
      return 0;
    });
  }
}

}  // namespace hanji::cli
