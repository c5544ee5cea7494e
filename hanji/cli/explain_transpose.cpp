#include <fmt/format.h>

#include <memory>

#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/report/collective_cost.h"
#include "hanji/report/transpose_picture.h"
#include "hanji/topology/machine.h"

namespace hanji::cli {
namespace {

struct TransposeOptions {
  report::TransposeShape shape;
  std::string bandwidth, latency, svg;
  bool as_json = false;
};

void check_transpose(const TransposeOptions& options) {
  const report::TransposeShape& shape = options.shape;
  OptionMistakes mistakes;
  const auto check = [&](const char* flag, int64_t size) {
    if (shape.ranks <= size) return;
    mistakes.add(
        fmt::format("--ranks is {}, but {} is {} and each rank has one or more; set --ranks "
                    "{} or less",
                    shape.ranks, flag, size, size));
  };
  check("--rows", shape.rows);
  check("--columns", shape.columns);
  if (const int64_t bytes = shape.element_bytes; bytes != 2 && bytes != 4 && bytes != 8) {
    mistakes.add(fmt::format("--element-bytes is {}; set 2, 4 or 8", bytes));
  }
  check_links(options.bandwidth, options.latency, mistakes);
  mistakes.throw_if_any();
}

/// Prices the all_to_all that it is; `source` says what the price is from.
report::CollectiveCost price_transpose(const TransposeOptions& options, std::string& source) {
  const report::TransposeBytes bytes = report::transpose_bytes(options.shape);
  cost::Question question{.routine = schedule::Routine::kAllToAll,
                          .bytes = std::max(bytes.before, bytes.after),
                          .ranks = options.shape.ranks};
  if (!options.bandwidth.empty()) {
    question.network = network_of(options.bandwidth, options.latency).network;
    return report::cost_on_network(question).or_throw();
  }
  base::throw_if_error(report::check_in_memory(question));
  const HostRates known = host_rates(topology::read_machine().or_throw(), question.ranks);
  source = known.source;
  return report::cost_in_memory(question, known.rates).or_throw();
}

std::string moved_text(const report::TransposeShape& shape) {
  const report::TransposeBytes bytes = report::transpose_bytes(shape);
  return base::wrap(
      fmt::format(
          "\na tensor of {} x {} x {} elements of {} bytes has {}; a rank has {} before and {} "
          "after\n"
          "a rank sends {}, each of its blocks to the rank that has its columns then; backward "
          "sends "
          "the gradient back by the same way\n"
          "if all_gather made all rows whole on every rank instead, a rank would receive {} and "
          "keep "
          "{}\n"
          "rounds, copies: one call; blocks become contiguous in a copy before it, rows in one "
          "after\n"
          "in C++: hanji::comm::transpose(part, 0, 1, group); axial parallelism does so between "
          "attention along rows and along columns (`hanji explain axial`)\n",
          shape.rows, shape.columns, shape.channels, shape.element_bytes,
          base::format_bytes(bytes.tensor), base::format_bytes(bytes.before),
          base::format_bytes(bytes.after), base::format_bytes(bytes.sent),
          base::format_bytes(bytes.gathered), base::format_bytes(bytes.tensor)),
      output_columns());
}

std::string explain(const TransposeOptions& options) {
  check_transpose(options);
  std::string source;
  const report::CollectiveCost cost = price_transpose(options, source);
  if (!options.svg.empty()) write_drawing(options.svg, report::transpose_svg(options.shape));
  if (options.as_json) {
    return fmt::format("{{\"transpose\": {},\n\"cost\": {},\n\"prices\": {}}}\n",
                       base::dump(report::transpose_json(options.shape)), report::to_json(cost),
                       base::dump(source));
  }
  std::string text = report::transpose_text(options.shape) + moved_text(options.shape) + "\n" +
                     report::to_text(cost, output_columns());
  if (!source.empty()) text += "\nprices: " + source + "\n";
  return text;
}

}  // namespace

void add_explain_transpose(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "transpose", "How a shard moves from the rows of a tensor to its columns, by one all_to_all");
  auto options = std::make_shared<TransposeOptions>();
  report::TransposeShape& shape = options->shape;
  const auto count = [&](const char* name, int64_t* value, const char* doc) {
    verb.add_option(name, value, doc).type_name("N").range(1, 1 << 16).show_default();
  };
  verb.add_option("-p,--ranks", &shape.ranks, "that have rows before and columns after")
      .type_name("N")
      .range(2, 1024)
      .show_default();
  count("--rows", &shape.rows, "of the tensor");
  count("--columns", &shape.columns, "of the tensor");
  count("--channels", &shape.channels, "elements of a row and column");
  verb.add_option("--element-bytes", &shape.element_bytes, "2 for bf16, 4 for float32")
      .range(2, 8)
      .show_default();
  add_link_options(verb, options->bandwidth, options->latency);
  verb.add_option("--svg", &options->svg, "writes the drawing there as well").type_name("FILE");
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
