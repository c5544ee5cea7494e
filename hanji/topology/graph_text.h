#pragma once

#include <string>

#include "hanji/base/json.h"
#include "hanji/topology/graph.h"
#include "hanji/topology/measure_cores.h"

namespace hanji::topology {

/// One line of a vertex: its name, size, CPUs and facts; what is unknown with its reason.
std::string describe(const Vertex& vertex);

/// The tree, one vertex per line, then NVLinks, GPUDirect and notes.
std::string graph_text(const Graph& graph);

/// One object: vertices, links (ends by id), gpu_direct, notes, and `measured` (null if nullptr) and
/// `measured_gpu`, as gpu_rates_json() or with the member `unknown`.
/// Units   bytes, seconds, bytes per second one way; an unknown rate is null with its reason.
std::string graph_json(const Graph& graph, const CoreRates* measured, const base::Json& gpu = {});

/// A drawing: one box per vertex, lines along the tree, arcs for NVLinks.
std::string graph_svg(const Graph& graph);

}  // namespace hanji::topology
