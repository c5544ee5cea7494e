#include "hanji/topology/contention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "hanji/base/clock.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/topology/graph.h"
#include "hanji/topology/internal/busy_links.h"
#include "hanji/topology/internal/contention_json.h"

namespace hanji::topology {
namespace {

constexpr const char* kNotInTime = "the time for measuring was over";
constexpr std::array kKinds = {SharedLink::kMemory, SharedLink::kUnix, SharedLink::kLoopback};

/// The rates of links in each round, or why there are none.
struct Rounds {
  std::vector<std::vector<double>> rates;  ///< Rates of the links in each round.
  std::string unknown = kNotInTime;

  void add(const std::vector<SharedLink>& links, const MeasureLinks& measure) {
    auto found = measure(links);
    if (found.ok()) rates.push_back(*std::move(found));
    unknown = found.status().message();
  }

  /// Takes the median of each link; empty where a round failed or none was in time.
  std::vector<double> medians() const {
    std::vector<double> found;
    if (!unknown.empty() || rates.empty()) return found;
    for (size_t link = 0; link < rates.front().size(); ++link) {
      std::vector<double> all;
      for (const std::vector<double>& round : rates) all.push_back(round[link]);
      std::ranges::sort(all);
      found.push_back(all[all.size() / 2]);
    }
    return found;
  }
};

LinksAtOnce row_from(const std::vector<SharedLink>& links,
                     const std::map<SharedLink, Rounds>& alone, const Rounds& together) {
  LinksAtOnce row{.links = links};
  for (const SharedLink kind : links) {
    const Rounds& one = alone.at(kind);
    const std::vector<double> rate = one.medians();
    row.alone.push_back(rate.empty() ? 0 : rate.front());
    if (row.unknown.empty()) row.unknown = one.unknown;
  }
  if (row.unknown.empty()) row.unknown = together.unknown;
  if (row.unknown.empty()) row.together = together.medians();
  return row;
}

/// "2 x memory", "memory + loopback TCP".
std::string links_text(const std::vector<SharedLink>& links) {
  if (std::ranges::adjacent_find(links, std::ranges::not_equal_to()) == links.end()) {
    return fmt::format("{} x {}", links.size(), name_of(links.front()));
  }
  std::string text;
  for (const SharedLink kind : links) {
    text += (text.empty() ? "" : " + ") + std::string(name_of(kind));
  }
  return text;
}

/// "10.2 GB/s" of links of one kind (their mean), else "10.2 + 3.1 GB/s".
std::string each_text(const std::vector<SharedLink>& links, const std::vector<double>& rates) {
  if (rates.empty()) return "unknown";
  if (links.front() == links.back()) {
    const auto count = static_cast<double>(rates.size());
    return format_rate(std::accumulate(rates.begin(), rates.end(), 0.0) / count);
  }
  std::string text;
  for (const double rate : rates) {
    text += fmt::format("{}{:.3g}", text.empty() ? "" : " + ", rate * 1e-9);
  }
  return text + " GB/s";
}

}  // namespace

std::string_view name_of(SharedLink kind) {
  switch (kind) {
    case SharedLink::kMemory: return "memory";
    case SharedLink::kUnix: return "Unix socket";
    case SharedLink::kLoopback: return "loopback TCP";
  }
  return "";
}

double LinksAtOnce::ratio() const {
  const double all = std::accumulate(alone.begin(), alone.end(), 0.0);
  if (together.empty() || all <= 0) return 0;
  double left = 0;  // the mean of what each link keeps
  for (size_t i = 0; i < alone.size(); ++i) left += together[i] / alone[i];
  return left / static_cast<double>(alone.size());
}

std::vector<std::vector<SharedLink>> links_at_once(int cores) {
  std::vector<std::vector<SharedLink>> all;
  for (const SharedLink kind : kKinds) {
    all.push_back({kind, kind});
    if (cores > 2) all.emplace_back(static_cast<size_t>(cores), kind);
  }
  for (size_t first = 0; first < kKinds.size(); ++first) {
    for (size_t second = first + 1; second < kKinds.size(); ++second) {
      all.push_back({kKinds[first], kKinds[second]});
    }
  }
  return all;
}

Contention measure_contention(int cores, const MeasureLinks& measure,
                              std::chrono::nanoseconds budget) {
  constexpr int kRounds = 3;
  const int64_t begin = base::now_ns();
  const auto deadline = base::Deadline::after(budget);
  const std::vector<std::vector<SharedLink>> rows = links_at_once(cores);
  std::map<SharedLink, Rounds> alone;
  for (const SharedLink kind : kKinds) alone[kind] = {};
  std::vector<Rounds> together(rows.size());
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [kind, rounds] : alone) {
      if (!deadline.passed()) rounds.add({kind}, measure);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!deadline.passed()) together[i].add(rows[i], measure);
    }
  }
  Contention found;
  for (size_t i = 0; i < rows.size(); ++i) {
    found.rows.push_back(row_from(rows[i], alone, together[i]));
  }
  found.seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
  return found;
}

MeasureLinks host_links(const Machine& machine, int64_t bytes) {
  std::vector<int> cpus;
  for (const std::vector<int>& core : machine.core_cpus) cpus.push_back(core.front());
  return [cpus, bytes](const std::vector<SharedLink>& links) {
    return internal::rates_at_once(links, cpus, bytes);
  };
}

std::string contention_text(const Contention& found, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"busy at once", kLeft}, {"each alone"}, {"each together"}, {"ratio"}});
  std::string unknown;
  for (const LinksAtOnce& row : found.rows) {
    const double ratio = row.ratio();
    table.add({links_text(row.links), each_text(row.links, row.alone),
               each_text(row.links, row.together), ratio > 0 ? fmt::format("{:.2f}", ratio) : "-"});
    if (!row.unknown.empty() && unknown.find(row.unknown) == std::string::npos) {
      unknown += "unknown: " + row.unknown + "\n";
    }
  }
  return fmt::format("contention, measured in {}, medians\n", base::format_seconds(found.seconds)) +
         table.text(columns) +
         base::wrap(unknown +
                        "ratio: what each link keeps of its rate alone, in the mean; 1 is no "
                        "contention. A socket has a thread at each end, which need cores too.\n",
                    columns);
}

base::Json contention_json(const Contention& found) {
  base::Json rows = base::Json::array();
  for (const LinksAtOnce& row : found.rows) {
    base::Json links = base::Json::array();
    for (const SharedLink kind : row.links) links.push_back(name_of(kind));
    const double ratio = row.ratio();
    rows.push_back({{"links", links},
                    {"alone_bytes_per_second", row.alone},
                    {"together_bytes_per_second", row.together},
                    {"ratio", ratio > 0 ? base::Json(ratio) : base::Json()},
                    {"unknown", row.unknown}});
  }
  return {{"seconds", found.seconds}, {"rows", rows}};
}

}  // namespace hanji::topology
