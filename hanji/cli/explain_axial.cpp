#include <algorithm>
#include <iostream>
#include <memory>

#include "hanji/base/atomic_file.h"
#include "hanji/base/status.h"
#include "hanji/cli/verbs.h"
#include "hanji/report/axial_table.h"

namespace hanji::cli {
namespace {

struct AxialOptions {
  layout::AxialBlock block;
  std::string triangle = "channels";
  std::string svg;
  int64_t element_bytes = 4;
  bool without_attention = false;
  bool as_json = false;
};

layout::AxialBlock block_of(const AxialOptions& options) {
  layout::AxialBlock block = options.block;
  block.has_attention = !options.without_attention;
  const auto& names = layout::kTriangleWayNames;
  const auto found = std::ranges::find(names, options.triangle);
  if (found == names.end()) {
    throw Error(base::invalid_argument("--triangle " + options.triangle +
                                       " is none of gather, ring, channels"));
  }
  block.triangle = static_cast<layout::TriangleWay>(found - names.begin());
  const int64_t least =
      block.sequences > 0 ? std::min(block.residues, block.sequences) : block.residues;
  if (block.ranks > least || block.width % block.heads != 0) {
    throw Error(base::invalid_argument(
        "-p is " + std::to_string(block.ranks) + " for " + std::to_string(least) +
        " rows, --width " + std::to_string(block.width) + " for --heads " +
        std::to_string(block.heads) +
        ": each rank has a row or more, and the width is a multiple of the heads"));
  }
  return block;
}

std::string explain(const AxialOptions& options) {
  const layout::AxialBlock block = block_of(options);
  std::string note;
  if (!options.svg.empty()) {
    base::throw_if_error(
        base::write_file_atomic(options.svg, report::axial_svg(block, options.element_bytes)));
    note = "drawn in " + options.svg + "\n";
  }
  if (options.as_json) return report::axial_json(block, options.element_bytes);
  return report::axial_table(block, options.element_bytes) + note;
}

}  // namespace

void add_explain_axial(Verb explain_verb) {
  const Verb verb = explain_verb.add_verb(
      "axial", "What moves in an Evoformer block whose rows of pairs ranks share out");
  auto options = std::make_shared<AxialOptions>();
  options->block.ranks = 2;
  const auto count = [&](const char* name, int64_t* value, const char* doc, int least) {
    verb.add_option(name, value, doc).type_name("N").range(least, 1 << 16).show_default();
  };
  count("--residues", &options->block.residues, "of a sample", 1);
  count("--msa", &options->block.sequences, "sequences of a sample; 0: pairs alone", 0);
  verb.add_option("--width", &options->block.width, "channels of a pair")
      .type_name("N")
      .range(1, 4096)
      .show_default();
  verb.add_option("--heads", &options->block.heads, "of triangle attention")
      .type_name("N")
      .range(1, 4096)
      .show_default();
  verb.add_option("-p,--ranks", &options->block.ranks, "that share out the rows")
      .type_name("N")
      .range(1, 1024)
      .show_default();
  verb.add_option("--triangle", &options->triangle, "gather, ring or channels: parallel.triangle")
      .type_name("WAY")
      .show_default();
  verb.add_flag("--no-attention", &options->without_attention,
                "without triangle attention, as pairmixer");
  verb.add_option("--element-bytes", &options->element_bytes, "2 for bf16, 4 for float32")
      .range(1, 8)
      .show_default();
  verb.add_option("--svg", &options->svg, "draws the layouts there").type_name("FILE");
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    std::cout << explain(*options) << std::flush;
    return 0;
  });
}

}  // namespace hanji::cli
