#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "hanji/base/limits.h"
#include "hanji/base/status.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/report/strategies_table.h"

namespace hanji::cli {
namespace {

struct StrategiesOptions {
  plan::ShardRanks ranks{.ranks = 8, .hybrid_ranks = 4};
  std::string states = "mixed";
  bool as_json = false;
};

std::string explain(const StrategiesOptions& options) {
  const plan::ShardRanks& ranks = options.ranks;
  if (ranks.ranks % ranks.hybrid_ranks != 0) {
    throw Error(base::invalid_argument(
        fmt::format("--fsdp is {}, which does not divide --ranks {}; set --fsdp {}",
                    ranks.hybrid_ranks, ranks.ranks,
                    fmt::join(layout::nearest_divisors(ranks.ranks, ranks.hybrid_ranks), " or "))));
  }
  const plan::StateWidths widths =
      options.states == "mixed" ? plan::kMixedAdam : plan::kFloat32Adam;
  return options.as_json ? report::strategies_json(widths, ranks)
                         : report::strategies_table(widths, ranks, output_columns());
}

}  // namespace

void add_explain_strategies(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "strategies",
      "What a rank has and sends under parallel.data, beside the names of FSDP and DeepSpeed");
  auto options = std::make_shared<StrategiesOptions>();
  const auto count = [&](const char* name, int* value, const char* doc) {
    verb.add_option(name, value, doc).type_name("N").range(1, base::kMaxRanks).show_default();
  };
  count("-p,--ranks", &options->ranks.ranks, "that see samples of their own");
  count("--fsdp", &options->ranks.hybrid_ranks, "ranks of a group within which hsdp shards");
  count("--servers", &options->ranks.servers, "parameter servers beside the ranks");
  verb.add_option("--states", &options->states,
                  "mixed: bf16 with an fp32 copy, Adam; fp32: all fp32, Adam")
      .type_name("KIND")
      .one_of({"mixed", "fp32"})
      .show_default();
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
