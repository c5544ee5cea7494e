#pragma once

#include <string_view>
#include <vector>

#include "hanji/cost/rates.h"
#include "hanji/cost/terms.h"
#include "hanji/schedule/step_list.h"

namespace hanji::cost {

class Chooser;
struct Query;

/// Predicted seconds of a step list inside one host.
///
/// Result  with costs fitted for as many ranks (Rates::fitted): each of the list's usage_of() times
///         its cost, and all times correction_of(); as one of many equal calls in a row. Else num_syncs * sync_seconds, plus for each epoch (what happens between two syncs) the
///         larger of: all ranks' bytes over the rates that they share, and the busiest rank's
///         bytes over the copy rate of one rank. A read or a write counts its bytes once; those of
///         tensors go at the memory rate once all tensors together exceed the cache, those of the
///         slots, which are small and used again, at the cached rate.
///         all_reduce_direct of p ranks and N bytes in memory: 2 syncs + 2 p N / memory rate.
/// Order   the list has passed schedule::check_bounds().
/// Source  traffic bounds: Jain et al., "Framework for Scalable Intra-Node Collective Operations
///         using Shared Memory", SC18, section V; caches: Williams et al., "Roofline", CACM 2009.
double price_seconds(const schedule::StepList& list, const Element& element, const Rates& rates);

/// The same by terms: meetings; moving; and of the time to move, what the reductions' share of all
/// bytes takes; of fitted costs, updating in place and combining.
Terms price_terms(const schedule::StepList& list, const Element& element, const Rates& rates);

/// Of the list that serves a call of ranks that share memory, whose tensors lie as query.in_heap says.
/// Errors  as Chooser::select().
double price_seconds(Query query, Chooser& chooser);

/// One of the costs that make up a price.
struct Part {
  std::string_view name;  ///< "meet", "read", "shared bus", ...
  double seconds = 0;
};
/// All that a fitted price is made of, above 0, the largest first; nothing without fitted costs for
/// as many ranks.
std::vector<Part> price_parts(const schedule::StepList& list, const Element& element,
                              const Rates& rates);

}  // namespace hanji::cost
