#include "hanji/cost/stored.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <set>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/base/version.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::cost {
namespace {

constexpr int64_t kDaySeconds = 24 * 3600;
constexpr size_t kMaxCostsBytes = 256 << 10;

struct Text {
  const char* name;
  const char* label;
  std::string Stamp::*value;
};
constexpr std::array kTexts = {Text{"cpu_model", "processor", &Stamp::cpu_model},
                               Text{"kernel", "kernel", &Stamp::kernel},
                               Text{"version", "hanji", &Stamp::version},
                               Text{"placement", "placement of ranks", &Stamp::placement}};

Status bad_cost(std::string_view member) {
  return base::corrupt(fmt::format(
      "stored costs: {} is missing or no value of it; fit again with `hanji bench --fit`", member));
}

int64_t now_seconds() { return base::wall_ns() / 1'000'000'000; }

}  // namespace

std::string placement_class(const topology::Machine& machine, int ranks) {
  const auto masks = topology::cpus_per_rank(machine, ranks);
  if (masks.empty()) return "shared";
  std::set<int> nodes;
  for (const auto& mask : masks) {
    for (const topology::NumaNode& node : machine.numa_nodes) {
      const auto is_here = [&](int cpu) { return std::ranges::count(node.cpus, cpu) > 0; };
      if (std::ranges::any_of(mask, is_here)) nodes.insert(node.id);
    }
  }
  return nodes.size() > 1 ? "far" : "near";
}

Stamp stamp_of(const topology::Machine& machine, int ranks) {
  struct utsname kernel {};
  ::uname(&kernel);
  return {.cpu_model = machine.cpu_model,
          .cores = machine.usable_cores,
          .kernel = kernel.release,
          .version = std::string(base::version()),
          .placement = placement_class(machine, ranks)};
}

std::string to_json(const StoredCosts& stored) {
  base::Json json;
  for (const Text& text : kTexts) json[text.name] = stored.stamp.*text.value;
  json["cores"] = stored.stamp.cores;
  json["fitted_at"] = stored.fitted_at;
  json["fit_seconds"] = stored.fit_seconds;
  json["load"] = stored.load;
  json["fits"] = stored.fits;
  json["costs"] = base::Json::parse(to_json(stored.costs));
  return base::dump(json, 1) + "\n";
}

Result<StoredCosts> stored_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 10, kMaxCostsBytes));
  if (!json.is_object()) return bad_cost("the object");
  StoredCosts stored;
  for (const Text& one : kTexts) {
    const auto found = json.find(one.name);
    if (found == json.end() || !found->is_string()) return bad_cost(one.name);
    stored.stamp.*one.value = found->get<std::string>();
  }
  for (const char* name : {"cores", "fitted_at"}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number_integer()) return bad_cost(name);
  }
  stored.stamp.cores = json["cores"].get<int>();
  stored.fitted_at = json["fitted_at"].get<int64_t>();
  const auto seconds = json.find("fit_seconds");
  if (seconds == json.end() || !seconds->is_number() || seconds->get<double>() < 0) {
    return bad_cost("fit_seconds");
  }
  stored.fit_seconds = seconds->get<double>();
  if (json.contains("load")) {  // files of before have none
    const bool good = json["load"].is_number() && json["load"].get<double>() >= 0 &&
                      json.contains("fits") && json["fits"].is_number_integer();
    if (!good) return bad_cost("load or fits");
    stored.load = json["load"].get<double>();
    stored.fits = json["fits"].get<int>();
  }
  const auto costs = json.find("costs");
  if (costs == json.end()) return bad_cost("costs");
  HANJI_ASSIGN_OR_RETURN(stored.costs, fitted_from_json(base::dump(*costs)));
  return stored;
}

std::string why_stale(const StoredCosts& stored, const Stamp& here, int64_t now) {
  for (const Text& text : kTexts) {
    const std::string& then = stored.stamp.*text.value;
    const std::string& is = here.*text.value;
    if (then != is) return fmt::format("{} was {} and is {}", text.label, then, is);
  }
  if (stored.stamp.cores != here.cores) {
    return fmt::format("usable cores were {} and are {}", stored.stamp.cores, here.cores);
  }
  const int64_t days = (now - stored.fitted_at) / kDaySeconds;
  if (days > kMaxDays) return fmt::format("they are {} days old, over {}", days, kMaxDays);
  if (stored.fitted_at > now + kDaySeconds) return "they are from the future: a clock was set";
  return "";
}

std::filesystem::path costs_file(const std::filesystem::path& folder, int ranks) {
  return folder / fmt::format("costs-{}-ranks.json", ranks);
}

Status save_costs(const std::filesystem::path& folder, const StoredCosts& stored) {
  HANJI_RETURN_IF_ERROR(base::make_directories(folder));
  return base::write_file_atomic(costs_file(folder, stored.costs.ranks), to_json(stored));
}

Result<StoredCosts> load_costs(const std::filesystem::path& folder, int ranks) {
  HANJI_ASSIGN_OR_RETURN(const std::string text,
                         base::read_file(costs_file(folder, ranks), kMaxCostsBytes));
  HANJI_ASSIGN_OR_RETURN(StoredCosts stored, stored_from_json(text));
  if (stored.costs.ranks != ranks) return bad_cost("costs of another number of ranks; ranks");
  return stored;
}

std::string describe(const StoredCosts& stored) {
  const auto at = static_cast<time_t>(stored.fitted_at);
  struct tm day {};
  ::gmtime_r(&at, &day);
  std::string text =
      fmt::format("costs timed on {:04}-{:02}-{:02} for {:.2g} s", day.tm_year + 1900,
                  day.tm_mon + 1, day.tm_mday, stored.fit_seconds);
  if (stored.fit_seconds < kThoroughSeconds) {
    text += fmt::format("; `hanji bench --fit --ranks {}` takes longer and is closer",
                        stored.costs.ranks);
  }
  const std::string load = topology::describe_load(stored.load);
  if (!load.empty()) text += "; " + load;
  return text;
}

std::string use_fitted(Rates& rates, const std::filesystem::path& folder,
                       const topology::Machine& machine, int ranks) {
  const std::string way_out = fmt::format("; run `hanji bench --fit --ranks {}`", ranks);
  auto stored = load_costs(folder, ranks);
  if (!stored.ok() && stored.status().code() == Code::kNotFound) {
    return "no costs were fitted for " + base::counted(ranks, "rank") + way_out;
  }
  if (!stored.ok()) return stored.status().message();
  const std::string stale = why_stale(*stored, stamp_of(machine, ranks), now_seconds());
  if (!stale.empty()) return fmt::format("the fitted costs are stale: {}", stale) + way_out;
  rates.fitted = std::move(stored->costs);
  return "";
}

}  // namespace hanji::cost
