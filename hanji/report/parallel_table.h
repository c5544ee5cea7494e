#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/plan/mesh_choices.h"

namespace hanji::report {

/// What an axis of the mesh means, as the mesh and the models say.
struct AxisMeaning {
  std::string_view axis;
  bool same_samples = false;    ///< Its ranks see the same samples.
  bool sums_gradients = false;  ///< Gradients are summed over them: they have the same parameters.
  std::vector<std::string_view> families =
      {};  ///< The families whose layers it cuts; empty: it cuts none.
};
/// All of layout::kAxisNames, in that order.
std::vector<AxisMeaning> axis_meanings();

/// A mesh of one axis, and what it moves in a step.
struct AxisPrice {
  std::string_view axis;
  std::vector<plan::MeshChoice> choices;  ///< The best, if a mesh of it serves.
  std::string refused = {};               ///< Else why not.
};
/// Prices all axes that cut query.model, with all its ranks on the one axis. Errors: as plan::choose_meshes().
Result<std::vector<AxisPrice>> price_axes(const plan::CapacityQuery& query);

/// What each axis cuts and sums, what the keys say of it, and what it moves of that model.
std::string parallel_table(const plan::CapacityQuery& query, const std::vector<AxisPrice>& prices,
                           int columns = base::kTerminalColumns);
/// {"axes": [...], "meshes": [...]}.
std::string parallel_json(const std::vector<AxisPrice>& prices);

}  // namespace hanji::report
