#include "hanji/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace hanji::base {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array kByteUnits = {Unit{"", 1},
                                   Unit{"B", 1},
                                   Unit{"KiB", kKi},
                                   Unit{"MiB", kKi* kKi},
                                   Unit{"GiB", kKi* kKi* kKi},
                                   Unit{"TiB", kKi* kKi* kKi* kKi},
                                   Unit{"kB", 1e3},
                                   Unit{"KB", 1e3},
                                   Unit{"MB", 1e6},
                                   Unit{"GB", 1e9},
                                   Unit{"TB", 1e12}};
constexpr std::array kTimeUnits = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3},
                                   Unit{"s", 1},     Unit{"m", 60},    Unit{"min", 60},
                                   Unit{"h", 3600}};

std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

/// Scales |value| down by `base` until three digits hold it.
std::string scaled(int64_t value, double base, std::span<const std::string_view> suffixes) {
  double size = std::abs(static_cast<double>(value));
  const std::string_view sign = value < 0 ? "-" : "";
  if (size < base) return fmt::format("{}{:.0f}{}", sign, size, suffixes[0]);
  size_t unit = 0;
  while (size >= base - 0.5 && unit + 1 < suffixes.size()) {
    size /= base;
    ++unit;
  }
  return fmt::format("{}{}{}", sign, three_digits(size), suffixes[unit]);
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<double> parse_with_units(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return {};
  const std::string_view name = trim(text.substr(static_cast<size_t>(end - text.data())));
  for (const Unit& unit : units) {
    if (unit.name == name) return value * unit.factor;
  }
  return {};
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kSuffixes = {" B",  " kB", " MB",
                                                                " GB", " TB", " PB"};
  return scaled(bytes, 1000, kSuffixes);
}

std::string format_count(int64_t count) {
  static constexpr std::array<std::string_view, 5> kSuffixes = {"", " k", " M", " G", " T"};
  return scaled(count, 1000, kSuffixes);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (std::abs(seconds) < 0.5e-9) return "0 s";
  if (seconds < 0) return fmt::format("-{}", format_seconds(-seconds));
  if (seconds < 0.9995e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const auto total = static_cast<int64_t>(std::min(std::round(seconds), 9e18));
  if (total < 3600) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
}

std::string counted(int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

Result<int64_t> parse_bytes(std::string_view text) {
  const auto bytes = parse_with_units(text, kByteUnits);
  if (!bytes || *bytes >= 0x1p63) {
    return invalid_argument(fmt::format(
        "'{}' is no size; write a number with KiB, MiB, GiB, kB, MB or GB, such as 64MiB", text));
  }
  return static_cast<int64_t>(std::llround(*bytes));
}

Result<double> parse_seconds(std::string_view text) {
  if (trim(text) == "0") return 0.0;
  const auto seconds = parse_with_units(text, kTimeUnits);
  if (seconds) return *seconds;
  return invalid_argument(fmt::format(
      "'{}' is no duration; write a number with ns, us, ms, s, m or h, such as 300s", text));
}

}  // namespace hanji::base
