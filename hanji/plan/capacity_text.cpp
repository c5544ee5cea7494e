#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/plan/capacity.h"
#include "hanji/plan/cheapest_changes.h"
#include "hanji/plan/memory_bars.h"

namespace hanji::plan {
namespace {

constexpr const char* kNotInTrain = "not in hanji train yet";

// Three to five digits.
std::string gigabytes(int64_t bytes) {
  const double value = static_cast<double>(bytes) / 1e9;
  return fmt::format("{:.{}f}", value, value < 100 ? 2 : value < 10000 ? 1 : 0);
}

// What is less than a hundredth of a gigabyte is told exactly.
std::string with_unit(int64_t bytes) {
  return bytes < 10'000'000 ? base::counted(bytes, "byte") : gigabytes(bytes) + " GB";
}

double flops_per_sample(const NamedModel& model) {
  return model.facts.product_flops_per_sample() + model.facts.attention_flops_per_sample();
}

std::string short_name(const std::string& category) {
  if (category == "parameters") return "params";
  if (category == "gradients") return "grads";
  if (category == "optimizer") return "optim";
  if (category == "activations") return "activ";
  if (category == "buckets") return "bucket";
  if (category == "unsharded units") return "units";
  if (category == "staging") return "stage";
  return category;
}

std::string label_of(const CapacityQuery& query, Sharding sharding) {
  if (sharding != Sharding::kHybrid) return std::string(name_of(sharding));
  return fmt::format("hsdp {}x{}", query.ranks.ranks / query.ranks.hybrid_ranks,
                     query.ranks.hybrid_ranks);
}

/// With a star if `hanji train` would reject it.
std::string marked(const CapacityQuery& query, const Capacity& one) {
  return label_of(query, one.sharding) + (one.not_in_train.empty() ? "" : "*");
}

std::vector<Capacity> all_of(const CapacityQuery& query) {
  std::vector<Capacity> all;
  for (const Sharding sharding : kShardings) all.push_back(capacity_of(query, sharding));
  return all;
}

std::string row(const std::string& label, const std::vector<MemoryLine>& lines) {
  std::string text = fmt::format("{:<12}", label);
  for (const MemoryLine& line : lines) text += fmt::format("{:>7}", gigabytes(line.bytes));
  return fmt::format("{}{:>9}\n", text, gigabytes(total_bytes(lines)));
}

std::string heading(const std::string& words, const std::vector<MemoryLine>& lines) {
  std::string text = fmt::format("{:<12}", words);
  for (const MemoryLine& line : lines) text += fmt::format("{:>7}", short_name(line.category));
  return fmt::format("{}{:>9}\n", text, "total");
}

std::string model_words(const CapacityQuery& query) {
  const NamedModel& m = query.model;
  const StateWidths& w = query.widths;
  const double states = static_cast<double>(w.sum()) * static_cast<double>(m.num_parameters);
  return fmt::format(
      "model      {}: {:.3g} x 10^9 parameters; {}\n"
      "work       {:.3g} floating-point operations a sample, forward and backward\n"
      "states     {} GB = {} bytes x parameters: {} parameter, {} gradient,\n"
      "           {} optimizer; states only, no activations or buffers; GB = 10^9 bytes\n",
      m.name, static_cast<double>(m.num_parameters) / 1e9, m.sizes, flops_per_sample(m),
      fmt::format("{:.5g}", states / 1e9), w.sum(), w.parameter, w.gradient, w.optimizer);
}

/// What one rank has of the states where they are cut.
std::string cut_words(const CapacityQuery& query) {
  if (query.ranks.ranks == 1) return "";
  std::string text;
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    const StateBytes states = state_bytes(sharding, static_cast<double>(query.model.num_parameters),
                                          query.widths, query.ranks);
    text += fmt::format("{} {} {}", text.empty() ? "" : ",", name_of(sharding),
                        gigabytes(std::llround(states.sum())));
  }
  return fmt::format("           cut among {}:{} GB each\n",
                     base::counted(query.ranks.ranks, "rank"), text);
}

std::string device_words(const CapacityQuery& query) {
  const DeviceSpec& d = query.device;
  const int hosts = query.hosts();
  std::string text = fmt::format("device     {}: {} GB{};\n           {}{}\n", d.name,
                                 gigabytes(d.memory_bytes), d.shares_host ? " a host" : "",
                                 d.source, d.date.empty() ? "" : ", read " + d.date);
  text +=
      fmt::format("ranks      {}, {} a host, {} host{}; micro_batch {}{}\n", query.ranks.ranks,
                  std::min(query.ranks.ranks, query.ranks_per_host), hosts, hosts == 1 ? "" : "s",
                  query.micro_batch, query.recompute ? ", blocks recomputed" : "");
  return text + "           The data set need not fit; a micro-batch must.\n";
}

std::string capacity_tables(const CapacityQuery& query, const std::vector<Capacity>& all) {
  std::string text = "\n" + heading("GB a rank", all.front().rank);
  for (const Capacity& one : all) {
    text += row(marked(query, one), one.rank);
    if (!one.server.empty()) text += row("  a server", one.server);
  }
  text += "\n" + heading("GB a host", all.front().host);
  for (const Capacity& one : all) text += row(marked(query, one), one.host);
  return text;
}

std::vector<MemoryBar> bars_of(const CapacityQuery& query, const std::vector<Capacity>& all) {
  std::vector<MemoryBar> bars;
  for (const Capacity& one : all) {
    bars.push_back({label_of(query, one.sharding), query.device.shares_host ? one.host : one.rank});
    if (!one.server.empty()) bars.push_back({"  a server", one.server});
  }
  return bars;
}

/// What is paid, an item a line where they are long together.
std::string price_lines(const std::string& price) {
  constexpr size_t kIndent = 21, kColumns = 80;
  std::string text;
  for (const char c : price) {
    const bool breaks = kIndent + price.size() > kColumns && c == ' ' && text.ends_with(';');
    text += breaks ? "\n" + std::string(kIndent, ' ') : std::string(1, c);
  }
  return text;
}

/// Each limit with the strategies that have it: "           on GPUs: server, zero1".
std::string limit_lines(const CapacityQuery& query, const std::vector<Capacity>& all) {
  std::vector<TrainLimit> limits;
  for (const Capacity& one : all) {
    limits.insert(limits.end(), one.not_in_train.begin(), one.not_in_train.end());
  }
  std::ranges::sort(limits);
  limits.erase(std::ranges::unique(limits).begin(), limits.end());
  std::string text;
  for (const TrainLimit limit : limits) {
    std::string names;
    size_t count = 0;
    for (const Capacity& one : all) {
      if (std::ranges::find(one.not_in_train, limit) == one.not_in_train.end()) continue;
      names += (names.empty() ? "" : ", ") + label_of(query, one.sharding);
      ++count;
    }
    text += fmt::format("           {}: {}\n", name_of(limit),
                        count == all.size() ? "every strategy" : names);
  }
  return text;
}

/// What of all this a user cannot have today.
std::string train_words(const CapacityQuery& query, const std::vector<Capacity>& all) {
  const std::string lines = limit_lines(query, all);
  if (lines.empty()) return "\ntrain      hanji train carries out each of these strategies\n";
  return fmt::format("\ntrain      * {}:\n{}", kNotInTrain, lines);
}

/// A line below a change that `hanji train` would reject.
std::string mark_of(const Change& change) {
  const auto limits = train_limits(setup_of(change.query, change.sharding));
  return limits.empty() ? "" : fmt::format("              {}\n", kNotInTrain);
}

std::string verdict(const CapacityQuery& query, const std::vector<Capacity>& all) {
  std::string fitting;
  for (const Capacity& one : all) {
    if (one.fits) fitting += (fitting.empty() ? "" : ", ") + marked(query, one);
  }
  const char* unit = query.device.shares_host ? "host" : "rank";
  const Capacity& plain = all.front();
  const int64_t needed = total_bytes(query.device.shares_host ? plain.host : plain.rank);
  std::string text = fmt::format("yes: it fits with {}\n", fitting);
  if (!plain.fits) {
    text = fmt::format("{}: with ddp a {} needs {},\n           {} more than the {} there are\n",
                       fitting.empty() ? "no" : "no, as it is", unit, with_unit(needed),
                       with_unit(needed - query.device.memory_bytes),
                       with_unit(query.device.memory_bytes));
    if (!fitting.empty()) text += fmt::format("           it fits with {}\n", fitting);
  }
  if (plain.fits) return "\nverdict    " + text;
  const auto changes = cheapest_changes(query);
  if (changes.empty()) text += "           nothing that is known here makes it fit\n";
  int number = 0;
  for (const Change& change : changes) {
    text += fmt::format("           {}. {}\n              price: {}\n{}", ++number, change.words,
                        price_lines(change.price), mark_of(change));
  }
  return "\nverdict    " + text;
}

base::Json json_of(const std::vector<TrainLimit>& limits) {
  base::Json json = base::Json::array();
  for (const TrainLimit limit : limits) json.push_back(name_of(limit));
  return json;
}

base::Json json_of(const std::vector<MemoryLine>& lines) {
  base::Json json = base::Json::object();
  for (const MemoryLine& line : lines) json[line.category] = line.bytes;
  json["total"] = total_bytes(lines);
  return json;
}

}  // namespace

std::string describe(const CapacityQuery& query) {
  const std::vector<Capacity> all = all_of(query);
  return model_words(query) + cut_words(query) + device_words(query) + capacity_tables(query, all) +
         "\n" + bars_text(bars_of(query, all), query.device.memory_bytes) +
         train_words(query, all) + verdict(query, all);
}

std::string to_json(const CapacityQuery& query) {
  base::Json json = {{"model", query.model.name},
                     {"parameters", query.model.num_parameters},
                     {"flops_per_sample", flops_per_sample(query.model)},
                     {"states_bytes", query.widths.sum() * query.model.num_parameters},
                     {"device",
                      {{"name", query.device.name},
                       {"bytes", query.device.memory_bytes},
                       {"source", query.device.source},
                       {"date", query.device.date}}},
                     {"ranks", query.ranks.ranks},
                     {"ranks_per_host", query.ranks_per_host},
                     {"micro_batch", query.micro_batch},
                     {"recompute", query.recompute}};
  for (const Capacity& one : all_of(query)) {
    base::Json entry = {{"rank", json_of(one.rank)},
                        {"host", json_of(one.host)},
                        {"fits", one.fits},
                        {"not_in_train", json_of(one.not_in_train)}};
    if (!one.server.empty()) entry["server"] = json_of(one.server);
    json["strategies"][std::string(name_of(one.sharding))] = std::move(entry);
  }
  json["changes"] = base::Json::array();
  if (json["strategies"]["ddp"]["fits"] == false) {
    for (const Change& change : cheapest_changes(query)) {
      const auto limits = train_limits(setup_of(change.query, change.sharding));
      json["changes"].push_back(
          {{"words", change.words}, {"price", change.price}, {"not_in_train", json_of(limits)}});
    }
  }
  return base::dump(json, 2) + "\n";
}

std::string to_svg(const CapacityQuery& query) {
  return bars_svg(bars_of(query, all_of(query)), query.device.memory_bytes);
}

}  // namespace hanji::plan
