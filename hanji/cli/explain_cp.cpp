#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>

#include "hanji/base/limits.h"
#include "hanji/base/status.h"
#include "hanji/base/units.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/plan/context.h"
#include "hanji/report/context_table.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

struct CpOptions {
  layout::ContextAttention attention{.ranks = 2};
  int64_t kv_heads = 0;
  int64_t samples = 1;
  int element_bytes = 4;
  std::string bandwidth, latency;
  bool as_json = false;
};

/// That all ranks send; larger samples are nobody's.
constexpr double kMaxBytes = 1e17;

layout::ContextAttention attention_of(const CpOptions& options) {
  layout::ContextAttention attention = options.attention;
  attention.kv_heads = options.kv_heads == 0 ? attention.heads : options.kv_heads;
  OptionMistakes mistakes;
  if (attention.heads % attention.kv_heads != 0) {
    mistakes.add(fmt::format(
        "--heads is {}, which is not a multiple of --kv-heads {}; set --kv-heads {}",
        attention.heads, attention.kv_heads,
        fmt::join(layout::nearest_divisors(attention.heads, attention.kv_heads), " or ")));
  }
  if (attention.tokens < attention.ranks) {
    mistakes.add(
        fmt::format("--tokens is {} for {}, each of which has one or more; set --ranks {} or "
                    "less",
                    attention.tokens, base::counted(attention.ranks, "rank"), attention.tokens));
  }
  if (const int bytes = options.element_bytes; bytes != 2 && bytes != 4 && bytes != 8) {
    mistakes.add(fmt::format("--element-bytes is {}; set 2, 4 or 8", bytes));
  }
  const double of_all = static_cast<double>(options.samples) *
                        static_cast<double>(attention.tokens * attention.ranks) *
                        static_cast<double>(attention.heads * attention.width);
  if (of_all * options.element_bytes > kMaxBytes) {
    mistakes.add(
        "--tokens times --heads times --head-width times --samples is above 10^17 bytes on all "
        "ranks; take smaller sizes");
  }
  check_links(options.bandwidth, options.latency, mistakes);
  if (options.bandwidth.empty() && attention.ranks > base::kMaxRanksPerHost) {
    mistakes.add(
        fmt::format("--ranks is {}, a host has at most {}; add --bandwidth of the links between "
                    "hosts, such as 25GB/s",
                    attention.ranks, base::kMaxRanksPerHost));
  }
  mistakes.throw_if_any();
  return attention;
}

std::string explain(const CpOptions& options) {
  const layout::ContextAttention attention = attention_of(options);
  std::vector<plan::ContextCost> costs;
  std::string source;
  if (options.bandwidth.empty()) {
    const HostRates known = host_rates(topology::read_machine().or_throw(), attention.ranks);
    costs = plan::compare_context(attention, options.samples, options.element_bytes, known.rates);
    source = known.source;
  } else {
    const NamedNetwork links = network_of(options.bandwidth, options.latency);
    costs = plan::compare_context(attention, options.samples, options.element_bytes, links.network);
    source = links.source;
  }
  if (options.as_json) return report::context_json(attention, options.samples, costs);
  return report::context_table(attention, options.samples, costs, output_columns()) +
         fmt::format("\nprices of transfers: {}\n", source);
}

}  // namespace

void add_explain_cp(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "cp", "What attention moves where ranks share the tokens of a sample: ulysses beside ring");
  auto options = std::make_shared<CpOptions>();
  const auto count = [&](const char* name, int64_t* value, const char* doc, int least, int most) {
    verb.add_option(name, value, doc).type_name("N").range(least, most).show_default();
  };
  count("--tokens", &options->attention.tokens, "of a sample", 1, 1 << 24);
  count("--heads", &options->attention.heads, "of queries", 1, 1 << 16);
  count("--kv-heads", &options->kv_heads, "of keys and values; 0: as many", 0, 1 << 16);
  count("--head-width", &options->attention.width, "features of a head", 1, 1 << 16);
  count("--samples", &options->samples, "of a micro-batch", 1, 1 << 16);
  verb.add_option("-p,--ranks", &options->attention.ranks, "that share the tokens")
      .type_name("N")
      .range(2, 1024)
      .show_default();
  add_link_options(verb, options->bandwidth, options->latency);
  verb.add_option("--element-bytes", &options->element_bytes, "2 for bf16, 4 for float32")
      .range(2, 8)
      .show_default();
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
