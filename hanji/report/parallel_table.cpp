#include "hanji/report/parallel_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/layout/axial_block.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/schema.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

using plan::MeshChoice;

/// The keys that say what axes cut and how their ranks exchange it.
constexpr std::array<std::string_view, 9> kKeys = {
    "mesh.pp",          "mesh.dp", "parallel.data",     "mesh.fsdp", "mesh.cp",
    "parallel.context", "mesh.tp", "parallel.sequence", "mesh.axial"};

bool cuts(const plan::ModelFamily& family, std::string_view axis) {
  return std::ranges::find(family.cut_axes, axis) != family.cut_axes.end();
}

const plan::AxisKey& key_of(std::string_view axis) {
  return *std::ranges::find(plan::kAxisKeys, axis, &plan::AxisKey::axis);
}

std::string families_text(const AxisMeaning& one) {
  return one.families.empty() ? "no layer" : fmt::format("{}", fmt::join(one.families, ", "));
}

std::string meanings_text(int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"axis", kLeft},
                         {"samples", kLeft},
                         {"parameters of its ranks", kLeft},
                         {"gradients", kLeft},
                         {"cuts layers of", kLeft}});
  for (const AxisMeaning& one : axis_meanings()) {
    table.add({std::string(one.axis), one.same_samples ? "the same" : "others each",
               one.sums_gradients ? "the same" : "others each",
               one.sums_gradients ? "summed over it" : "each its own", families_text(one)});
  }
  return table.text(columns);
}

std::string keys_text(int columns) {
  base::TextTable table({{"key", base::TextTable::Align::kLeft, /*is_whole=*/true},
                         {"means", base::TextTable::Align::kLeft}});
  for (const std::string_view name : kKeys) {
    if (const plan::Key* key = plan::find_key(name)) {
      table.add({std::string(name), std::string(key->doc)});
    }
  }
  return table.text(columns);
}

std::string bytes_text(double bytes) {
  return bytes > 0 ? base::format_bytes(static_cast<int64_t>(bytes)) : "";
}

std::string prices_text(const plan::CapacityQuery& query, const std::vector<AxisPrice>& prices,
                        int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"axis", kLeft},
                         {"a rank has"},
                         {"stages"},
                         {"data"},
                         {"layers"},
                         {"bubble"},
                         {"asked by", kLeft}});
  for (const AxisPrice& one : prices) {
    if (one.choices.empty()) {
      table.add({std::string(one.axis), "", "", "", "", "", one.refused});
      continue;
    }
    const MeshChoice& mesh = one.choices.front();
    table.add({std::string(one.axis), bytes_text(static_cast<double>(total_bytes(mesh.rank))),
               bytes_text(mesh.stage_bytes), bytes_text(mesh.data_bytes),
               bytes_text(mesh.layer_bytes),
               mesh.bubble > 0 ? fmt::format("{:.0f} %", 100 * mesh.bubble) : "", flags_of(mesh)});
  }
  return fmt::format("{} on {}, {} in a step; bytes that a rank sends in it\n\n", query.model.name,
                     base::counted(query.ranks.ranks, "rank"),
                     base::counted(query.global_batch, "sample")) +
         table.text(columns);
}

/// Moves of a block of the evoformer's default sizes, which no GPT has.
std::string axial_text(int ranks, int64_t element_bytes) {
  const layout::AxialBlock block{.ranks = ranks};
  int64_t elements = 0;
  for (const layout::AxialMove& move : axial_moves(block)) elements += move.forward + move.backward;
  return fmt::format(
      "\naxial: in a block of {} by {} a rank sends {}, forward and backward "
      "(`hanji explain axial -p {} --element-bytes {}`)\n",
      base::counted(block.residues, "residue"), base::counted(block.sequences, "sequence"),
      base::format_bytes(elements * element_bytes / ranks), ranks, element_bytes);
}

constexpr const char* kWords =
    "\nstages: flows and their gradients, over pp; data: gradients, and parameters that are cut, "
    "over "
    "dp and fsdp; layers: activations, over cp, tp and axial; bubble: time without work, over the "
    "work\n"
    "axes are nested as they are listed: the ranks of the last one are neighbours\n";

}  // namespace

std::vector<AxisMeaning> axis_meanings() {
  constexpr int kRanks = 2;
  std::vector<AxisMeaning> all;
  for (const std::string_view axis : layout::kAxisNames) {
    const auto mesh = layout::MeshShape::create({{std::string(axis), kRanks}}, kRanks).or_throw();
    AxisMeaning one{.axis = axis,
                    .same_samples = mesh.data_peers(0).size() == kRanks,
                    .sums_gradients = mesh.gradient_group(0).size() == kRanks};
    for (const plan::ModelFamily& family : plan::model_families()) {
      const bool has_stages = axis == "pp" && family.facts != nullptr;
      if (cuts(family, axis) || has_stages) one.families.push_back(family.name);
    }
    all.push_back(std::move(one));
  }
  return all;
}

Result<std::vector<AxisPrice>> price_axes(const plan::CapacityQuery& query) {
  std::vector<AxisPrice> all;
  for (const std::string_view axis : layout::kAxisNames) {
    if (axis == "axial") continue;  // no model of tokens has pairs
    plan::MeshConfig mesh;
    mesh.dp = mesh.fsdp = 1;
    mesh.*key_of(axis).degree = query.ranks.ranks;
    const auto table = plan::choose_meshes(query, mesh);
    if (!table.ok()) {
      all.push_back({axis, {}, table.status().message()});
      continue;
    }
    AxisPrice one{axis, table->fitting};
    if (one.choices.empty() && table->smallest) one.choices = {*table->smallest};
    all.push_back(std::move(one));
  }
  return all;
}

std::string parallel_table(const plan::CapacityQuery& query, const std::vector<AxisPrice>& prices,
                           int columns) {
  return meanings_text(columns) + "\n" + keys_text(columns) + "\n" +
         prices_text(query, prices, columns) +
         base::wrap(axial_text(query.ranks.ranks, query.widths.parameter) + kWords, columns);
}

std::string parallel_json(const std::vector<AxisPrice>& prices) {
  base::Json axes = base::Json::array(), meshes = base::Json::array();
  for (const AxisMeaning& one : axis_meanings()) {
    axes.push_back({{"axis", one.axis},
                    {"same_samples", one.same_samples},
                    {"sums_gradients", one.sums_gradients},
                    {"families", one.families}});
  }
  for (const AxisPrice& one : prices) {
    base::Json mesh = {{"axis", one.axis}, {"refused", one.refused}};
    if (!one.choices.empty()) {
      const MeshChoice& best = one.choices.front();
      mesh.update({{"flags", flags_of(best)},
                   {"rank_bytes", total_bytes(best.rank)},
                   {"stage_bytes", best.stage_bytes},
                   {"data_bytes", best.data_bytes},
                   {"layer_bytes", best.layer_bytes},
                   {"bubble", best.bubble}});
    }
    meshes.push_back(std::move(mesh));
  }
  const base::Json json = {{"axes", std::move(axes)}, {"meshes", std::move(meshes)}};
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::report
