#include "hanji/cost/rates.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "hanji/base/json.h"

namespace hanji::cost {
namespace {

struct Member {
  const char* name;
  double Rates::*value;
};

constexpr std::array kMembers = {
    Member{"memory_bytes_per_second", &Rates::memory_bytes_per_second},
    Member{"cached_bytes_per_second", &Rates::cached_bytes_per_second},
    Member{"copy_bytes_per_second", &Rates::copy_bytes_per_second},
    Member{"sync_seconds", &Rates::sync_seconds},
};
/// Of plans before operations were timed.
constexpr std::array kFormerMembers = {"gemm_flops_per_second_fp32", "gemm_flops_per_second_bf16",
                                       "compute_share"};
constexpr const char* kCacheBytes = "cache_bytes";
constexpr const char* kFitted = "fitted";
constexpr size_t kMaxRatesBytes = 256 << 10;

Status bad_rate(std::string_view member, std::string_view why) {
  return base::corrupt(fmt::format("rates: {} {}; measure again", member, why));
}

}  // namespace

std::string to_json(const Rates& rates) {
  base::Json json;
  for (const Member& member : kMembers) json[member.name] = rates.*member.value;
  json[kCacheBytes] = rates.cache_bytes;
  if (rates.fitted) json[kFitted] = base::Json::parse(to_json(*rates.fitted));
  return base::dump(json);
}

Result<Rates> rates_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 8, kMaxRatesBytes));
  if (!json.is_object()) return bad_rate("the text", "is not an object");
  Rates rates;
  for (const Member& member : kMembers) {
    const auto found = json.find(member.name);
    if (found == json.end()) return bad_rate(member.name, "is missing");
    if (!found->is_number()) return bad_rate(member.name, "is not a number");
    const double value = found->get<double>();
    if (!std::isfinite(value) || value <= 0) return bad_rate(member.name, "is not positive");
    rates.*member.value = value;
  }
  const auto cache = json.find(kCacheBytes);
  if (cache == json.end()) return bad_rate(kCacheBytes, "is missing");
  if (!cache->is_number_integer() || cache->get<int64_t>() <= 0) {
    return bad_rate(kCacheBytes, "is not a positive integer");
  }
  rates.cache_bytes = cache->get<int64_t>();
  const auto fitted = json.find(kFitted);
  if (fitted != json.end()) {
    HANJI_ASSIGN_OR_RETURN(rates.fitted, fitted_from_json(base::dump(*fitted)));
  }
  size_t known = kMembers.size() + (fitted == json.end() ? 1 : 2);
  for (const char* former : kFormerMembers) known += json.count(former);
  if (json.size() != known) return bad_rate("the object", "has unknown members");
  return rates;
}

}  // namespace hanji::cost
