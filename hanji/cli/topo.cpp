#include <iostream>
#include <memory>
#include <optional>

#include "hanji/base/file.h"
#include "hanji/base/status.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/compute/first_gpu.h"
#include "hanji/topology/gpu_rates_json.h"
#include "hanji/topology/graph_text.h"
#include "hanji/topology/nominal.h"
#include "hanji/topology/read_graph.h"

namespace hanji::cli {
namespace {

struct TopoOptions {
  bool as_json = false;
  bool measure = false;
  bool nominal = false;
  std::string svg;
};

/// Null where nothing was to be measured.
base::Json json_of(const compute::FirstGpu& gpu) {
  if (gpu.rates) return topology::gpu_rates_json(*gpu.rates);
  return gpu.why_not.empty() ? base::Json() : base::Json{{"unknown", gpu.why_not}};
}

int show_topology(const TopoOptions& options) {
  if (options.nominal) {
    print_text(
        options.as_json ? topology::nominal_json() : topology::nominal_text(output_columns()),
        options.as_json);
    return 0;
  }
  const topology::Graph graph = topology::read_graph().or_throw();
  if (!options.svg.empty()) {
    write_drawing(options.svg, topology::graph_svg(graph));
  }
  std::optional<topology::CoreRates> rates;
  compute::FirstGpu gpu;
  if (options.measure) {
    std::cerr << "hanji: measuring cores, links and the first GPU, at most some 15 s\n";
    const topology::Machine machine = topology::read_machine().or_throw();
    rates = topology::measure_cores(graph, machine);
    rates->contention = topology::measure_contention(machine.usable_cores,
                                                     topology::host_links(machine, rates->bytes));
    gpu = compute::measure_first_gpu();
  }
  if (options.as_json) {
    std::cout << topology::graph_json(graph, rates ? &*rates : nullptr, json_of(gpu)) << std::flush;
    return 0;
  }
  std::string text = topology::graph_text(graph);
  if (rates) {
    text += "\n" + topology::core_rates_text(*rates) + "\nGPU " +
            (gpu.rates ? topology::gpu_rates_text(*gpu.rates) : "not measured: " + gpu.why_not) +
            "\n";
  }
  print_text(text, false);
  return 0;
}

}  // namespace

void add_topo(Verb command) {
  const Verb verb = command.add_verb("topo", "Show this host as a graph: parts, links, rates");
  auto options = std::make_shared<TopoOptions>();
  verb.add_flag("--json", &options->as_json, "the graph (or with --nominal the table) as JSON");
  const Option svg = verb.add_option("--svg", &options->svg, "draw the graph into this file, too")
                         .type_name("FILE");
  const Option measure = verb.add_flag(
      "--measure", &options->measure,
      "measure flags and copies between cores, links alone and at once, and the first GPU: at most "
      "some 15 s");
  verb.add_flag("--nominal", &options->nominal,
                "list the links' specifications instead of this host")
      .excludes(svg)
      .excludes(measure);
  verb.on_chosen([=] { return show_topology(*options); });
}

}  // namespace hanji::cli
