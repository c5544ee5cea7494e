#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>

#include "hanji/base/file.h"
#include "hanji/base/status.h"
#include "hanji/base/units.h"
#include "hanji/cli/host_rates.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/cost/triangle.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/report/axial_table.h"

namespace hanji::cli {
namespace {

struct AxialOptions {
  layout::AxialBlock block;
  std::string triangle = "auto";
  std::string bandwidth, latency, memory;
  std::string svg;
  int64_t element_bytes = 4;
  int64_t blocks = 48;
  bool without_attention = false;
  bool as_json = false;
};

bool has_channels_for_all(const layout::AxialBlock& block) { return block.ranks <= block.width; }

void check_sizes(const layout::AxialBlock& block, OptionMistakes& mistakes) {
  const bool by_sequences = block.sequences > 0 && block.sequences < block.residues;
  const int64_t rows = by_sequences ? block.sequences : block.residues;
  if (block.ranks > rows) {
    mistakes.add(
        fmt::format("-p is {}, but {} is {} and each rank has a row or more; set -p {} or "
                    "less",
                    block.ranks, by_sequences ? "--msa" : "--residues", rows, rows));
  }
  const bool by_rows = block.triangle == layout::TriangleWay::kGather ||
                       block.triangle == layout::TriangleWay::kRing;
  if (!by_rows && !has_channels_for_all(block)) {
    mistakes.add(
        fmt::format("-p is {}, but --width is {} and each rank has a channel or more of a "
                    "triangle product; set -p {} or less, or --triangle ring",
                    block.ranks, block.width, block.width));
  }
  if (block.padded >= block.residues) {
    mistakes.add(fmt::format("--padded is {} of {} --residues; set {} or less", block.padded,
                             block.residues, block.residues - 1));
  }
  if (block.width % block.heads != 0) {
    mistakes.add(fmt::format(
        "--width is {}, which is not a multiple of --heads {}; set --heads {}", block.width,
        block.heads, fmt::join(layout::nearest_divisors(block.width, block.heads), " or ")));
  }
}

layout::AxialBlock block_of(const AxialOptions& options) {
  layout::AxialBlock block = options.block;
  block.has_attention = !options.without_attention;
  const auto& names = layout::kTriangleWayNames;
  const auto found = std::ranges::find(names, options.triangle);
  OptionMistakes mistakes;
  if (found == names.end()) {
    mistakes.add("--triangle " + options.triangle + " is none of gather, ring, channels, auto");
  } else {
    block.triangle = static_cast<layout::TriangleWay>(found - names.begin());
  }
  if (const int64_t bytes = options.element_bytes; bytes != 2 && bytes != 4 && bytes != 8) {
    mistakes.add(fmt::format("--element-bytes is {}; set 2, 4 or 8", bytes));
  }
  check_links(options.bandwidth, options.latency, mistakes);
  if (!options.memory.empty()) {
    const auto bytes = base::parse_bytes(options.memory);
    if (!bytes.ok()) mistakes.add(bytes.status().at("--memory"));
  }
  check_sizes(block, mistakes);
  mistakes.throw_if_any();
  return block;
}

/// Without a rate of links bytes alone decide, as on links of one byte a second.
Links links_of(const AxialOptions& options) {
  const int ranks = options.block.ranks;
  if (!options.bandwidth.empty()) {
    return network_links(options.bandwidth, options.latency, ranks);
  }
  const double share = 1 - 1.0 / ranks;  // of a tensor, that a rank does not send to itself
  return {[share](schedule::Routine, int64_t bytes) { return share * static_cast<double>(bytes); },
          ""};
}

/// The ways to multiply triangles, and of them the one that the block takes; on one rank none.
std::vector<cost::TriangleCost> decide_triangle(const AxialOptions& options, const Links& links,
                                                layout::AxialBlock& block) {
  if (block.ranks == 1) return {};
  auto ways = cost::compare_triangles(block, options.element_bytes, links.seconds_of);
  if (!has_channels_for_all(block)) {
    std::erase_if(ways, [](const cost::TriangleCost& one) {
      return one.way == layout::TriangleWay::kChannels;
    });
  }
  if (block.triangle == layout::TriangleWay::kAuto) {
    const int64_t free = options.memory.empty() ? std::numeric_limits<int64_t>::max()
                                                : base::parse_bytes(options.memory).or_throw();
    block.triangle = cost::cheapest_triangle(ways, options.blocks, free);
  }
  if (options.bandwidth.empty()) {
    for (cost::TriangleCost& one : ways) one.seconds = 0;
  }
  return ways;
}

std::string taken(const AxialOptions& options, const Links& links, layout::TriangleWay way) {
  const std::string name(layout::kTriangleWayNames[static_cast<size_t>(way)]);
  if (options.triangle != "auto") return "taken: " + name + ", as asked\n";
  if (!links.source.empty())
    return "taken: " + name + ", the fastest that fits; " + links.source + "\n";
  return "taken: " + name +
         ", which sends least of those that fit; --bandwidth and --latency price calls\n";
}

std::string explain(const AxialOptions& options) {
  layout::AxialBlock block = block_of(options);
  const Links links = links_of(options);
  const auto ways = decide_triangle(options, links, block);
  std::string note;
  if (!ways.empty())
    note = report::triangle_table(ways, output_columns()) + taken(options, links, block.triangle);
  if (!options.svg.empty()) {
    write_drawing(options.svg, report::axial_svg(block, options.element_bytes));
    note += "drawn in " + options.svg + "\n";
  }
  if (options.as_json) return report::axial_json(block, options.element_bytes, ways);
  return report::axial_table(block, options.element_bytes, output_columns()) +
         report::axial_rows_table(block, options.element_bytes, output_columns()) + note;
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
  count("--padded", &options->block.padded, "residues at the end that a sample does not have", 0);
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
  verb.add_option("--triangle", &options->triangle,
                  "gather, ring or channels; auto: the fastest that fits, as parallel.triangle")
      .type_name("WAY")
      .show_default();
  verb.add_option("--bandwidth", &options->bandwidth,
                  "of every link, each way: 25GB/s; default: bytes alone decide")
      .type_name("RATE");
  verb.add_option("--latency", &options->latency, "of every message: 10us; default: none")
      .type_name("TIME");
  verb.add_option("--memory", &options->memory,
                  "of a rank, free beside what channels take: 4GiB; default: no limit")
      .type_name("BYTES");
  verb.add_option("--blocks", &options->blocks,
                  "that keep what their backward needs; 1 with compute.recompute")
      .type_name("N")
      .range(1, 4096)
      .show_default();
  verb.add_flag("--no-attention", &options->without_attention,
                "without triangle attention, as pairmixer");
  verb.add_option("--element-bytes", &options->element_bytes, "2 for bf16, 4 for float32")
      .range(1, 8)
      .show_default();
  verb.add_option("--svg", &options->svg, "draws the layouts there").type_name("FILE");
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] {
    print_text(explain(*options), options->as_json);
    return 0;
  });
}

}  // namespace hanji::cli
