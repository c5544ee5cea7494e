#include "hanji/topology/measure_cores.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/clock.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/topology/internal/contention_json.h"
#include "hanji/topology/internal/core_kernels.h"

namespace hanji::topology {
namespace {

constexpr const char* kNoTime = "the time for measuring was over";
constexpr int64_t kMinBufferBytes = 16 << 20, kMaxBufferBytes = 1 << 30;

int64_t last_cache(const Machine& machine) {
  int64_t cache = 0;
  for (const Cache& one : machine.caches) cache = std::max(cache, one.bytes);
  return cache;
}

/// Twice the last cache, within what memory bears for two buffers per core.
int64_t buffer_bytes(const Machine& machine) {
  const int64_t cache = last_cache(machine);
  const int64_t wanted = std::clamp(2 * cache, kMinBufferBytes, kMaxBufferBytes);
  const int64_t share = machine.available_bytes / 4 / (2 * std::max(1, machine.usable_cores));
  return std::clamp<int64_t>(std::min(wanted, share), 1 << 20, kMaxBufferBytes) / 4096 * 4096;
}

PairRate measure_pair(const CpuPair& pair, int64_t bytes) {
  PairRate rate{.pair = pair};
  const auto latency = flag_seconds(pair.first, pair.second);
  const auto copied = copy_bytes_per_second(pair.first, pair.second, bytes);
  if (latency.ok()) rate.latency_seconds = *latency;
  if (copied.ok()) rate.bytes_per_second = *copied;
  rate.unknown = !latency.ok() ? latency.status().message() : copied.status().message();
  return rate;
}

CopyRate measure_copies(const std::vector<int>& cpus, int64_t bytes) {
  CopyRate rate{.num_copies = static_cast<int>(cpus.size())};
  const auto together = copies_at_once(cpus, bytes);
  if (together.ok()) rate.bytes_per_second = *together;
  rate.unknown = together.status().message();
  return rate;
}

/// Whether rates are of memory or of a cache.
std::string beside_cache(const CoreRates& rates) {
  if (rates.cache_bytes == 0) return "";
  const std::string cache = base::format_bytes(rates.cache_bytes);
  if (rates.bytes > rates.cache_bytes) return ", beyond the last cache of " + cache;
  return ", within the last cache of " + cache +
         ": free memory has no room for larger ones, and rates are partly its own";
}

base::Json number(double value) { return value > 0 ? base::Json(value) : base::Json(); }

}  // namespace

CoreRates measure_cores(const Graph& graph, const Machine& machine,
                        std::chrono::nanoseconds budget) {
  const int64_t begin = base::now_ns();
  const auto deadline = base::Deadline::after(budget);
  CoreRates rates{.bytes = buffer_bytes(machine), .cache_bytes = last_cache(machine)};
  std::vector<int> cpus, first_of_core;
  for (const std::vector<int>& core : machine.core_cpus) {
    cpus.insert(cpus.end(), core.begin(), core.end());
    first_of_core.push_back(core.front());
  }
  std::ranges::sort(cpus);
  for (const CpuPair& pair : representative_pairs(graph, cpus)) {
    rates.pairs.push_back(deadline.passed() ? PairRate{.pair = pair, .unknown = kNoTime}
                                            : measure_pair(pair, rates.bytes));
  }
  const int cores = std::min(machine.usable_cores, static_cast<int>(first_of_core.size()));
  for (const int count : copy_counts(cores)) {
    rates.copies.push_back(
        deadline.passed()
            ? CopyRate{.num_copies = count, .unknown = kNoTime}
            : measure_copies({first_of_core.begin(), first_of_core.begin() + count}, rates.bytes));
  }
  rates.seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
  return rates;
}

std::string core_rates_text(const CoreRates& rates) {
  std::string text =
      fmt::format("measured in {}, buffers of {}{}, medians\n", base::format_seconds(rates.seconds),
                  base::format_bytes(rates.bytes), beside_cache(rates));
  for (const PairRate& one : rates.pairs) {
    text +=
        fmt::format("  {:<16} CPUs {} and {}: flag {}, copy {}{}{}\n", name_of(one.pair.kind),
                    one.pair.first, one.pair.second,
                    one.latency_seconds > 0 ? base::format_seconds(one.latency_seconds) : "unknown",
                    one.bytes_per_second > 0 ? format_rate(one.bytes_per_second) : "unknown",
                    one.unknown.empty() ? "" : ": ", one.unknown);
  }
  if (rates.pairs.empty()) text += "  pairs            unknown: only one CPU is usable here\n";
  for (const CopyRate& one : rates.copies) {
    text += fmt::format(
        "  {:>3} {} at once: {}\n", one.num_copies, one.num_copies == 1 ? "copy  " : "copies",
        one.bytes_per_second > 0 ? fmt::format("{}, {} each", format_rate(one.bytes_per_second),
                                               format_rate(one.bytes_per_second / one.num_copies))
                                 : "unknown: " + one.unknown);
  }
  return rates.contention ? text + "\n" + contention_text(*rates.contention) : text;
}

std::string core_rates_json(const CoreRates& rates) {
  base::Json json = {{"buffer_bytes", rates.bytes},
                     {"last_cache_bytes", rates.cache_bytes},
                     {"seconds", rates.seconds}};
  json["contention"] = rates.contention ? contention_json(*rates.contention) : base::Json();
  json["pairs"] = base::Json::array();
  for (const PairRate& one : rates.pairs) {
    json["pairs"].push_back({{"kind", name_of(one.pair.kind)},
                             {"cpus", {one.pair.first, one.pair.second}},
                             {"latency_seconds", number(one.latency_seconds)},
                             {"bytes_per_second", number(one.bytes_per_second)},
                             {"unknown", one.unknown}});
  }
  json["copies"] = base::Json::array();
  for (const CopyRate& one : rates.copies) {
    json["copies"].push_back({{"num_copies", one.num_copies},
                              {"bytes_per_second", number(one.bytes_per_second)},
                              {"unknown", one.unknown}});
  }
  return base::dump(json);
}

}  // namespace hanji::topology
