#include <fmt/format.h>

#include <array>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/plan/mesh_choices.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::plan {
namespace {

/// "12.34 G": at most seven characters.
std::string amount(double bytes) {
  const std::array<const char*, 6> units = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); bytes /= 1000) ++unit;
  return fmt::format("{:.{}f}{}", bytes,
                     unit == 0 || bytes >= 100 ? 0
                     : bytes >= 10             ? 1
                                               : 2,
                     units[unit]);
}

std::string bytes_of_rank(const MeshChoice& one) {
  return amount(static_cast<double>(total_bytes(one.rank)));
}

/// Whether other programs took more of the machine than a measurement stands.
bool was_disturbed(const MeshChoice& one) { return one.load > topology::kMaxLoad; }

std::string table_of(const std::vector<MeshChoice>& choices, int columns) {
  base::TextTable table({{"rank"},
                         {"pp"},
                         {"data"},
                         {"layers"},
                         {"bub %"},
                         {"seconds "},
                         {"best first", base::TextTable::Align::kLeft, /*is_whole=*/true}});
  for (const MeshChoice& one : choices) {
    table.add({bytes_of_rank(one), amount(one.stage_bytes), amount(one.data_bytes),
               amount(one.layer_bytes), fmt::format("{:.1f}", 100 * one.bubble),
               fmt::format("{:.4g}{}", one.seconds, was_disturbed(one) ? "*" : " "),
               flags_of(one)});
  }
  return table.text(columns);
}

/// What the marks of rows mean; empty without one.
std::string marks_words(const MeshTable& table) {
  const auto busiest = std::ranges::max_element(table.fitting, {}, &MeshChoice::load);
  if (busiest == table.fitting.end() || !was_disturbed(*busiest)) return "";
  return fmt::format(
      "*          timed while other processes used up to {:.0f} % of the CPUs: such rows may "
      "be too slow beside others; the next --meshes on a quieter machine times them again\n",
      100 * busiest->load);
}

std::string missing_words(const MeshTable& table) {
  std::string text;
  for (const auto& [why, count] : table.refused) {
    text += fmt::format("refused    {}: {}\n", count, why);
  }
  if (!table.not_tried.empty()) text += fmt::format("not tried  {}\n", table.not_tried);
  if (const auto& least = table.smallest) {
    text += fmt::format("too large  {}; the least needs {} a rank: {}\n", table.num_too_large,
                        bytes_of_rank(*least), flags_of(*least));
  }
  return text;
}

base::Json value_of(const MeshChoice& one) {
  base::Json memory = base::Json::object();
  for (const MemoryLine& line : one.rank) memory[line.category] = line.bytes;
  return {{"mesh", to_string(one.mesh)},
          {"data", name_of(one.data)},
          {"reshard", name_of(one.reshard)},
          {"flags", flags_of(one)},
          {"context", name_of(one.context)},
          {"recompute", one.recompute},
          {"sequence", one.sequence},
          {"memory", std::move(memory)},
          {"rank_bytes", total_bytes(one.rank)},
          {"stage_bytes", one.stage_bytes},
          {"data_bytes", one.data_bytes},
          {"layer_bytes", one.layer_bytes},
          {"bubble", one.bubble},
          {"seconds", one.seconds},
          {"load", one.load}};
}

}  // namespace

std::string to_string(const MeshConfig& mesh) {
  std::string text;
  for (const AxisKey& one : kAxisKeys) {
    if (mesh.*one.degree == 1) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", one.axis, mesh.*one.degree);
  }
  return text.empty() ? "dp=1" : text;
}

std::vector<std::string> assignments_of(const MeshChoice& one) {
  std::vector<std::string> assignments;
  const auto add = [&](bool is_set, std::string_view key, std::string_view value) {
    if (is_set) assignments.push_back(fmt::format("{}={}", key, value));
  };
  add(one.data != Sharding::kReplicas, "parallel.data", name_of(one.data));
  add(one.reshard != Reshard::kAuto, "parallel.share_memory", "false");
  add(one.reshard != Reshard::kAuto, "parallel.reshard", name_of(one.reshard));
  add(one.context != ContextWay::kAuto, "parallel.context", name_of(one.context));
  add(one.recompute, "compute.recompute", "true");
  add(one.sequence, "parallel.sequence", "true");
  return assignments;
}

std::string flags_of(const MeshChoice& one) {
  std::string flags = "--mesh " + to_string(one.mesh);
  for (const std::string& assignment : assignments_of(one)) flags += " --set " + assignment;
  return flags;
}

std::string describe(const MeshTable& table, int columns) {
  std::string text = table.about;
  text +=
      "           bytes of a rank, and those that it sends in a step over each axis\n"
      "           (k, M, G, T: 10^3, 10^6, 10^9, 10^12)\n\n";
  text += table_of(table.fitting, columns);
  if (table.fitting.empty()) text += "none fits\n";
  const std::string missing = marks_words(table) + missing_words(table);
  constexpr int kHanging = 11;  // below what the first line of a note says
  return missing.empty() ? text : text + "\n" + base::wrap(missing, columns, kHanging);
}

std::string to_json(const MeshTable& table) {
  base::Json json = {{"about", table.about},
                     {"fitting", base::Json::array()},
                     {"refused", base::Json::object()},
                     {"too_large", table.num_too_large}};
  for (const MeshChoice& one : table.fitting) json["fitting"].push_back(value_of(one));
  for (const auto& [why, count] : table.refused) json["refused"][why] = count;
  if (!table.not_tried.empty()) json["not_tried"] = table.not_tried;
  if (table.smallest) json["smallest_too_large"] = value_of(*table.smallest);
  return base::dump(json, 2) + "\n";
}

}  // namespace hanji::plan
