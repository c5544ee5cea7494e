#include "hanji/report/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/plan/named_model.h"

namespace hanji::report {
namespace {

using plan::DeviceSpec;

std::string rate_or_none(double rate) {
  return rate > 0 ? fmt::format("{:.4g} GB/s", rate / 1e9) : "-";
}

std::string teraflops(double rate) {
  return rate > 0 ? fmt::format("{:.4g} TF/s", rate / 1e12) : "-";
}

const plan::DeviceRate* rate_of(const DeviceSpec& device, std::string_view dtype) {
  const auto found = std::ranges::find(device.rates, dtype, &plan::DeviceRate::dtype);
  return found == device.rates.end() ? nullptr : &*found;
}

/// Rows of several devices, each filled by a function of one.
class DeviceRows {
 public:
  explicit DeviceRows(std::span<const DeviceSpec> devices) : devices_(devices) {
    using Align = base::TextTable::Align;
    columns_.push_back({"", Align::kLeft});
    for (const DeviceSpec& one : devices) columns_.push_back({one.name, Align::kLeft});
  }

  void add(const std::string& name, const std::function<std::string(const DeviceSpec&)>& cell) {
    std::vector<std::string> row{name};
    for (const DeviceSpec& one : devices_) row.push_back(cell(one));
    const bool is_known = std::any_of(row.begin() + 1, row.end(),
                                      [](const std::string& text) { return text != "-"; });
    if (is_known) rows_.push_back(std::move(row));
  }

  std::string text(int columns) const {
    base::TextTable table(columns_);
    for (const std::vector<std::string>& row : rows_) table.add(row);
    return table.text(columns);
  }

 private:
  std::span<const DeviceSpec> devices_;
  std::vector<base::TextTable::Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string figures_text(std::span<const DeviceSpec> devices, int columns) {
  DeviceRows rows(devices);
  rows.add("memory", [](const DeviceSpec& d) {
    return fmt::format("{:.4g} GB", static_cast<double>(d.memory_bytes) / 1e9);
  });
  rows.add("memory, a second", [](const DeviceSpec& d) { return rate_or_none(d.memory_rate); });
  for (const char* dtype : {"fp8", "bf16", "fp16", "tf32", "fp32"}) {
    const auto cell = [&](double plan::DeviceRate::*member) {
      return [dtype, member](const DeviceSpec& d) {
        const plan::DeviceRate* rate = rate_of(d, dtype);
        return rate ? teraflops(rate->*member) : "-";
      };
    };
    rows.add(fmt::format("{} products, peak", dtype), cell(&plan::DeviceRate::peak_flops));
    rows.add(fmt::format("{} products, measured", dtype), cell(&plan::DeviceRate::measured_flops));
  }
  const auto link = [&](const std::string& name, std::string plan::DeviceLinks::*kind, auto rate) {
    rows.add(name, [kind](const DeviceSpec& d) {
      return (d.links.*kind).empty() ? std::string("-") : d.links.*kind;
    });
    rows.add(name + ", one way", [rate](const DeviceSpec& d) { return rate_or_none(rate(d)); });
  };
  link("link to peers", &plan::DeviceLinks::peers, [](const DeviceSpec& d) { return d.link_rate; });
  link("link to the host", &plan::DeviceLinks::host,
       [](const DeviceSpec& d) { return d.links.host_rate; });
  link("network", &plan::DeviceLinks::network,
       [](const DeviceSpec& d) { return d.links.network_rate; });
  return rows.text(columns);
}

std::string count_or_none(double count) {
  return count > 0 ? base::format_count(std::llround(count)) : "-";
}

std::string meaning_text(std::span<const DeviceSpec> devices, int columns) {
  DeviceRows rows(devices);
  const auto add = [&](const char* name, double DeviceMeaning::*member, auto text) {
    rows.add(name, [member, text](const DeviceSpec& d) -> std::string {
      const double value = meaning_of(d).*member;
      return value > 0 ? text(value) : std::string("-");
    });
  };
  add("(a) FLOP for a byte of memory", &DeviceMeaning::ridge, count_or_none);
  add("(b) n of a product that has as many", &DeviceMeaning::square, count_or_none);
  add("(c) parameters that fill the memory", &DeviceMeaning::parameters, count_or_none);
  add("(d) reading all memory once", &DeviceMeaning::memory_seconds, base::format_seconds);
  add("(e) tokens that hide an all_reduce", &DeviceMeaning::link_tokens, count_or_none);
  add("(e) the same over the network", &DeviceMeaning::network_tokens, count_or_none);
  add("(f) all memory to the host", &DeviceMeaning::host_seconds, base::format_seconds);
  return rows.text(columns);
}

constexpr const char* kMeanings =
    "(a) the ridge of the roofline: an operation that does fewer for each byte that it moves waits "
    "for "
    "memory; element-wise ones do about 1.\n"
    "(b) n x n by n x n of two-byte elements does n/3 for each byte.\n"
    "(c) at 16 bytes for each parameter: bf16 with an fp32 copy, Adam; no activations yet.\n"
    "(d) an update of as many parameters is not faster.\n"
    "(e) of one rank and step, over the links to peers: backward does 4 FLOP for each parameter "
    "and token, a ring of many "
    "ranks "
    "sends 4 bytes of each parameter's bf16 gradient.\n"
    "(f) at the rate of the link: what saving all of it takes at least.\n"
    "GB = 10^9 bytes, TF/s = 10^12 operations a second of dense matrices; (a), (b) and (e) by the "
    "rate "
    "that `hanji plan --device` computes with: the fastest measured, where none is known 0.8 of "
    "the "
    "peak.\n";

std::string sources_text(std::span<const DeviceSpec> devices) {
  return fmt::format(
      "rates: {} (read {}); PCIe and NVLink as `hanji topo --nominal`; networks: the makers' pages "
      "of "
      "the hosts named.\n",
      devices[0].source, devices[0].date);
}

base::Json or_null(double value) { return value > 0 ? base::Json(value) : base::Json(); }

base::Json json_of(const DeviceSpec& d) {
  base::Json rates = base::Json::array();
  for (const plan::DeviceRate& one : d.rates) {
    rates.push_back({{"dtype", one.dtype},
                     {"peak_flops_per_second", or_null(one.peak_flops)},
                     {"measured_flops_per_second", or_null(one.measured_flops)}});
  }
  const DeviceMeaning meaning = meaning_of(d);
  const auto link = [](const std::string& name, double rate) {
    return base::Json{{"name", name}, {"bytes_per_second", or_null(rate)}};
  };
  return {
      {"name", d.name},
      {"memory_bytes", d.memory_bytes},
      {"memory_bytes_per_second", or_null(d.memory_rate)},
      {"rates", rates},
      {"computed_with_flops_per_second", or_null(d.flops)},
      {"links",
       {{"peers", link(d.links.peers, d.link_rate)},
        {"host", link(d.links.host, d.links.host_rate)},
        {"network", link(d.links.network, d.links.network_rate)}}},
      {"step",
       {{"ridge_flops_per_byte", or_null(meaning.ridge)},
        {"square_product_at_ridge", or_null(meaning.square)},
        {"parameters_that_fill_memory", or_null(meaning.parameters)},
        {"memory_seconds", or_null(meaning.memory_seconds)},
        {"tokens_that_hide_all_reduce",
         {{"peers", or_null(meaning.link_tokens)}, {"network", or_null(meaning.network_tokens)}}},
        {"host_seconds", or_null(meaning.host_seconds)}}},
      {"source", d.source},
      {"date", d.date}};
}

}  // namespace

DeviceMeaning meaning_of(const DeviceSpec& device) {
  constexpr double kBackward = 4, kSent = 4;  // FLOP of a parameter and token, bytes of a parameter
  const auto over = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  const auto memory = static_cast<double>(device.memory_bytes);
  const double ridge = over(device.flops, device.memory_rate);
  return {.ridge = ridge,
          .square = 3 * ridge,
          .parameters = memory / static_cast<double>(plan::kMixedAdam.sum()),
          .memory_seconds = over(memory, device.memory_rate),
          .link_tokens = over(device.flops * kSent / kBackward, device.link_rate),
          .network_tokens = over(device.flops * kSent / kBackward, device.links.network_rate),
          .host_seconds = over(memory, device.links.host_rate)};
}

std::string device_table(std::span<const DeviceSpec> devices, int columns) {
  return figures_text(devices, columns) + "\nin a step of training\n" +
         meaning_text(devices, columns) + "\n" +
         base::wrap(kMeanings + sources_text(devices), columns);
}

std::string device_json(std::span<const DeviceSpec> devices) {
  base::Json all = base::Json::array();
  for (const DeviceSpec& one : devices) all.push_back(json_of(one));
  return base::dump(all, 1) + "\n";
}

}  // namespace hanji::report
