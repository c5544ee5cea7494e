#include "hanji/cost/fitted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"

namespace hanji::cost {
namespace {

struct Common {
  const char* name;
  double FittedCosts::*value;
};
constexpr std::array kCommon = {Common{"call_seconds", &FittedCosts::call_seconds},
                                Common{"sync_seconds", &FittedCosts::sync_seconds},
                                Common{"step_seconds", &FittedCosts::step_seconds},
                                Common{"wake_seconds", &FittedCosts::wake_seconds}};
constexpr std::array kErrors = {Common{"median_error", &FittedCosts::median_error},
                                Common{"worst_error", &FittedCosts::worst_error}};
static_assert(kCommon.size() == kCommonUnknowns);

struct PerLevel {
  const char* name;
  double Level::*value;
};
constexpr std::array kPerLevel = {
    PerLevel{"read", &Level::read},     PerLevel{"write", &Level::write},
    PerLevel{"update", &Level::update}, PerLevel{"pass", &Level::pass},
    PerLevel{"claim", &Level::claim},   PerLevel{"others", &Level::others}};
static_assert(kPerLevel.size() + kFittedTypes.size() == kLevelUnknowns);

Status refuse(std::string_view member, std::string_view why) {
  return base::corrupt(
      fmt::format("fitted costs: {} {}; fit again with `hanji bench --fit`", member, why));
}

// Reads members by name and counts them, so that what is left over is seen.
class Reader {
 public:
  Reader(const base::Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Status number(const std::string& name, double& value) {
    const std::string label = where_ + name;
    const auto found = json_.find(name);
    if (found == json_.end()) return refuse(label, "is missing");
    if (!found->is_number()) return refuse(label, "is not a number");
    value = found->get<double>();
    if (!std::isfinite(value) || value < 0) return refuse(label, "is negative or infinite");
    ++num_read_;
    return {};
  }

  Status count(const std::string& name, int& value) {
    double number_value = 0;
    HANJI_RETURN_IF_ERROR(number(name, number_value));
    if (number_value < 1 || number_value > 1e6 || number_value != std::floor(number_value)) {
      return refuse(where_ + name, "is not a count from 1 on");
    }
    value = static_cast<int>(number_value);
    return {};
  }

  Status end(size_t others = 0) const {
    if (json_.size() != num_read_ + others) return refuse(where_ + "object", "has unknown members");
    return {};
  }

 private:
  const base::Json& json_;
  std::string where_;
  size_t num_read_ = 0;
};

std::string combine_name(size_t type) {
  return "combine_" + std::string(base::name_of(kFittedTypes[type]));
}

Status read_level(const base::Json& json, size_t index, Level& level) {
  const std::string where = fmt::format("level {}: ", index);
  if (!json.is_object()) return refuse(where, "is not an object");
  Reader reader(json, where);
  double bytes = 0;
  HANJI_RETURN_IF_ERROR(reader.number("bytes", bytes));
  if (bytes != static_cast<double>(kLevelBytes[index])) {
    return refuse(where + "bytes", "is of another version");
  }
  for (const PerLevel& one : kPerLevel) {
    HANJI_RETURN_IF_ERROR(reader.number(one.name, level.*one.value));
  }
  for (size_t type = 0; type < kFittedTypes.size(); ++type) {
    HANJI_RETURN_IF_ERROR(reader.number(combine_name(type), level.combine[type]));
  }
  return reader.end();
}

base::Json correction_json(const Correction& correction) {
  base::Json points = base::Json::array();
  for (const auto& point : correction.points) points.push_back({point.bytes, point.factor});
  return {{"routine", schedule::name_of(correction.routine)},
          {"algorithm", correction.algorithm},
          {"dtype", base::name_of(correction.dtype)},
          {"in_heap", correction.in_heap},
          {"points", std::move(points)}};
}

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType dtype : kFittedTypes) {
    if (base::name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

Status read_points(const base::Json& json, Correction& correction) {
  for (const base::Json& one : json) {
    const bool is_pair =
        one.is_array() && one.size() == 2 && one[0].is_number_integer() && one[1].is_number();
    if (!is_pair) return refuse("corrections", "has a point that is no pair of bytes and factor");
    const Correction::Point point{one[0].get<int64_t>(), one[1].get<double>()};
    const bool rises = correction.points.empty() || point.bytes > correction.points.back().bytes;
    if (point.bytes < 0 || !rises || !(point.factor > 0) || !std::isfinite(point.factor)) {
      return refuse("corrections", "has a point out of order or a factor not above 0");
    }
    correction.points.push_back(point);
  }
  return {};
}

Result<Correction> read_correction(const base::Json& json) {
  const auto text = [&](const char* name) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto routine = schedule::routine_named(text("routine"));
  const auto dtype = dtype_named(text("dtype"));
  Correction correction;
  correction.algorithm = text("algorithm");
  const bool whole = routine && dtype && !correction.algorithm.empty() && json.size() == 5 &&
                     json.contains("points") && json["points"].is_array() &&
                     !json["points"].empty() && json.contains("in_heap") &&
                     json["in_heap"].is_boolean();
  if (!whole) {
    return refuse("corrections", "has one without routine, algorithm, dtype, in_heap or points");
  }
  correction.in_heap = json["in_heap"].get<bool>();
  correction.routine = *routine;
  correction.dtype = *dtype;
  HANJI_RETURN_IF_ERROR(read_points(json["points"], correction));
  return correction;
}

// Between two points, over the logarithm of bytes.
double factor_at(const std::vector<Correction::Point>& points, double bytes) {
  const auto above = std::ranges::find_if(
      points, [&](const auto& point) { return static_cast<double>(point.bytes) >= bytes; });
  if (above == points.begin()) return above->factor;
  if (above == points.end()) return points.back().factor;
  const auto log_of = [](int64_t value) { return std::log2(std::max<double>(1, value)); };
  const auto below = std::prev(above);
  const double share = (std::log2(std::max(1.0, bytes)) - log_of(below->bytes)) /
                       std::max(1e-9, log_of(above->bytes) - log_of(below->bytes));
  return below->factor + share * (above->factor - below->factor);
}

}  // namespace

double correction_of(const FittedCosts& costs, schedule::Routine routine,
                     std::string_view algorithm, const Element& element, double bytes) {
  const DType dtype = kFittedTypes[fitted_type(element)];
  const Correction* nearest = nullptr;
  int best = -1;
  for (const Correction& one : costs.corrections) {
    if (one.routine != routine || one.algorithm != algorithm || one.points.empty()) continue;
    if (one.dtype != dtype && one.dtype != DType::kFloat32) continue;
    const int fit = (one.in_heap == element.in_heap ? 2 : 0) + (one.dtype == dtype ? 1 : 0);
    const bool says_nothing = element.in_heap && !one.in_heap;
    if (says_nothing || fit <= best) continue;
    best = fit;
    nearest = &one;
  }
  return nearest == nullptr ? 1 : factor_at(nearest->points, bytes);
}

size_t fitted_type(const Element& element) {
  if (element.dtype) {
    const auto found = std::ranges::find(kFittedTypes, *element.dtype);
    if (found != kFittedTypes.end()) return static_cast<size_t>(found - kFittedTypes.begin());
  }
  for (size_t i = 0; i < kFittedTypes.size(); ++i) {
    if (base::size_of(kFittedTypes[i]) == element.bytes) return i;
  }
  return 0;
}

std::string to_json(const FittedCosts& costs) {
  base::Json json = {{"ranks", costs.ranks}, {"processors", costs.processors}};
  for (const Common& one : kCommon) json[one.name] = costs.*one.value;
  for (const Common& one : kErrors) json[one.name] = costs.*one.value;
  json["levels"] = base::Json::array();
  for (size_t i = 0; i < kLevelBytes.size(); ++i) {
    base::Json level = {{"bytes", kLevelBytes[i]}};
    for (const PerLevel& one : kPerLevel) level[one.name] = costs.levels[i].*one.value;
    for (size_t type = 0; type < kFittedTypes.size(); ++type) {
      level[combine_name(type)] = costs.levels[i].combine[type];
    }
    json["levels"].push_back(std::move(level));
  }
  json["corrections"] = base::Json::array();
  for (const Correction& one : costs.corrections) {
    json["corrections"].push_back(correction_json(one));
  }
  return base::dump(json);
}

Result<FittedCosts> fitted_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 6, 256 << 10));
  if (!json.is_object()) return refuse("the text", "is not an object");
  FittedCosts costs;
  Reader reader(json, "");
  HANJI_RETURN_IF_ERROR(reader.count("ranks", costs.ranks));
  HANJI_RETURN_IF_ERROR(reader.count("processors", costs.processors));
  for (const Common& one : kCommon)
    HANJI_RETURN_IF_ERROR(reader.number(one.name, costs.*one.value));
  for (const Common& one : kErrors)
    HANJI_RETURN_IF_ERROR(reader.number(one.name, costs.*one.value));
  const auto levels = json.find("levels");
  if (levels == json.end() || !levels->is_array() || levels->size() != kLevelBytes.size()) {
    return refuse("levels", fmt::format("is not a list of {}", kLevelBytes.size()));
  }
  for (size_t i = 0; i < kLevelBytes.size(); ++i) {
    HANJI_RETURN_IF_ERROR(read_level((*levels)[i], i, costs.levels[i]));
  }
  const auto corrections = json.find("corrections");
  if (corrections == json.end() || !corrections->is_array()) {
    return refuse("corrections", "is not a list");
  }
  for (const base::Json& one : *corrections) {
    HANJI_ASSIGN_OR_RETURN(Correction correction, read_correction(one));
    costs.corrections.push_back(std::move(correction));
  }
  HANJI_RETURN_IF_ERROR(reader.end(2));
  return costs;
}

std::vector<double> unknowns_of(const FittedCosts& costs) {
  std::vector<double> values;
  for (const Common& one : kCommon) values.push_back(costs.*one.value);
  for (const Level& level : costs.levels) {
    for (const PerLevel& one : kPerLevel) values.push_back(level.*one.value);
    values.insert(values.end(), level.combine.begin(), level.combine.end());
  }
  return values;
}

void set_unknowns(FittedCosts& costs, std::span<const double> values) {
  size_t next = 0;
  for (const Common& one : kCommon) costs.*one.value = values[next++];
  for (Level& level : costs.levels) {
    for (const PerLevel& one : kPerLevel) level.*one.value = values[next++];
    for (double& combine : level.combine) combine = values[next++];
  }
}

}  // namespace hanji::cost
