#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::train {

/// The time of a measurement, the load by other processes during it, and the machine's speed then.
struct Mark {
  int64_t measured_at = 0;  ///< Seconds since 1970-01-01 UTC.
  double load = 0;          ///< Share of all CPUs that other processes used.
  double probe = 0;         ///< Seconds of MeasureOnce::probe; 0: none.
};

/// Of the time of fixed work over what it took at the measurement, either way: beyond it, the machine
/// has another speed. Virtual machines share cores with others, and lose and regain a third of theirs.
inline constexpr double kMaxSpeedRatio = 1.1;

/// A measurement in the cache folder.
struct KeptMeasurement {
  std::string key;  ///< All that it depends on. JSON, as is `value`.
  Mark mark;
  std::string value;
};

std::string to_json(const KeptMeasurement& measurement);
/// Strict. Errors: corrupt.
Result<KeptMeasurement> measurement_from_json(std::string_view text);

/// The reason to measure again: age, a load above topology::kMaxLoad, a clock that was set, or another speed of the machine, if
/// fixed work takes `probe` seconds now. Empty: the measurement is valid.
std::string why_again(const Mark& mark, int64_t now_seconds, double probe = 0);

/// The file of a measurement: its kind, and a hash of its key.
std::filesystem::path measurement_file(const std::filesystem::path& folder, std::string_view kind,
                                       std::string_view key);
/// All valid measurements of that kind in `folder`; none if it does not exist.
std::vector<KeptMeasurement> list_measurements(const std::filesystem::path& folder,
                                               std::string_view kind);

/// Runs `measure` and returns the time and the load. Takes at least 0.1 s, because the host counts CPU
/// time in units of 0.01 s.
Mark mark_while(const std::function<void()>& measure);

/// The share of all CPUs that other processes took in a tenth of a second, which is waited for at most
/// once a second in a process: the plans of many meshes ask for it one after the other. Any thread may call it.
double load_of_late();

/// A measurement that is taken once per machine.
struct MeasureOnce {
  std::string kind;
  std::string key;
  std::function<bool(const std::string& value)> is_sound = {};
  /// `before`: the previous value, to keep if the new one is not better; or empty.
  std::function<Result<std::string>(const std::string& before)> measure = {};
  std::function<Mark(const std::function<void()>&)> mark = mark_while;
  std::function<double()> look = load_of_late;  ///< At the load, before `measure`.
  /// Times fixed work, for values that follow the machine's speed; none: they hold at any.
  std::function<double()> probe = {};
  /// Called if the new value cannot be stored, with the reason.
  std::function<void(const Status& reason)> on_unkept = {};
};

/// A value, and the load of the measurement that it is from.
struct MarkedValue {
  std::string value;
  double load = 0;
};

/// Returns the value stored in `folder`, or measures and stores it. A value that was measured under
/// load, more than cost::kMaxDays ago, or at another speed of the machine is measured again. The new
/// value replaces it unless it was measured under load too, and not with twice the CPUs to itself: values that
/// others disturb alike shall not replace each other. If a look at the load tells beforehand that it would
/// not, nothing is measured. A damaged or foreign file is overwritten.
/// No folder, or one that cannot be written, is no failure: the value is measured each time.
/// Errors  those of `measure`.
Result<MarkedValue> measured_once(const Result<std::filesystem::path>& folder,
                                  const MeasureOnce& what);

}  // namespace hanji::train
