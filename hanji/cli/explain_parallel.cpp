#include <memory>

#include "hanji/base/limits.h"
#include "hanji/base/status.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/parallel_table.h"

namespace hanji::cli {
namespace {

struct ParallelOptions {
  std::string model = "gpt2";
  std::string device = "h100-80";
  int ranks = 4;
  int64_t global_batch = 32;
  bool as_json = false;
};

std::string explain(const ParallelOptions& options) {
  plan::CapacityQuery query;
  query.device = plan::find_device(options.device).or_throw();
  query.model =
      plan::find_model(options.model, plan::facts_options(query.device, query.widths)).or_throw();
  query.ranks.ranks = options.ranks;
  query.global_batch = options.global_batch;
  const auto prices = report::price_axes(query).or_throw();
  return options.as_json ? report::parallel_json(prices)
                         : report::parallel_table(query, prices, output_columns());
}

}  // namespace

void add_explain_parallel(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "parallel", "Which axis of the mesh cuts what and moves what, with the bytes of a GPT");
  auto options = std::make_shared<ParallelOptions>();
  verb.add_option("--model", &options->model, "a GPT: gpt:7B, or a preset")
      .type_name("NAME")
      .show_default();
  verb.add_option("--device", &options->device, "of a rank, whose rates decide between variants")
      .type_name("NAME")
      .show_default();
  verb.add_option("-p,--ranks", &options->ranks, "all of them on one axis")
      .type_name("N")
      .range(2, base::kMaxRanks)
      .show_default();
  verb.add_option("--global-batch", &options->global_batch, "samples of a step")
      .type_name("N")
      .range(1, 1 << 20)
      .show_default();
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
