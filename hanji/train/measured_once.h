#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::train {

/// When a measurement was taken, and how much of the machine others had meanwhile.
struct Mark {
  int64_t measured_at = 0;  ///< Seconds since 1970-01-01 UTC.
  double load = 0;          ///< Share of all CPUs that other processes took.
};

/// Above it a measurement was taken under load.
inline constexpr double kMaxLoad = 0.1;

/// A measurement as it lies in the cache folder.
struct KeptMeasurement {
  std::string key;  ///< What it depends on: JSON, as `value` is.
  Mark mark;
  std::string value;
};

std::string to_json(const KeptMeasurement& measurement);
/// Strict. Errors: corrupt.
Result<KeptMeasurement> measurement_from_json(std::string_view text);

/// Why a measurement is taken again: its age, its load, or a clock that was set. Empty: it holds.
std::string why_again(const Mark& mark, int64_t now_seconds);

/// The file of a measurement: its kind, and a hash of its key.
std::filesystem::path measurement_file(const std::filesystem::path& folder, std::string_view kind,
                                       std::string_view key);
/// Every sound measurement of that kind in `folder`; none where it is not there.
std::vector<KeptMeasurement> list_measurements(const std::filesystem::path& folder,
                                               std::string_view kind);

/// Runs `measure` and tells when and under which load. Takes a tenth of a second at least: the host
/// counts CPU time in hundredths.
Mark mark_while(const std::function<void()>& measure);

/// What is measured once per machine.
struct MeasureOnce {
  std::string kind;
  std::string key;
  std::function<bool(const std::string& value)> is_sound;
  /// `before`: the value so far, which is to be kept where the new one is no better; or empty.
  std::function<Result<std::string>(const std::string& before)> measure;
  std::function<Mark(const std::function<void()>&)> mark = mark_while;
};

/// The value kept in `folder`, or else measured now and kept. One that was measured under load, or
/// more than cost::kMaxDays ago, is measured again; the new value takes its place unless it was
/// measured under load in its turn. A damaged or foreign file is written anew.
/// Errors  those of `measure` and of writing the file.
Result<std::string> measured_once(const std::filesystem::path& folder, const MeasureOnce& what);

}  // namespace hanji::train
