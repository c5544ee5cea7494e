#include "hanji/train/measured_once.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/cost/stored.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDaySeconds = 24 * 3600;
constexpr int64_t kShortestNs = 100'000'000;
constexpr int64_t kLookNs = 1'000'000'000;
constexpr size_t kMaxBytes = 1 << 20;

int64_t now_seconds() { return base::wall_ns() / 1'000'000'000; }

std::optional<KeptMeasurement> read_measurement(const fs::path& file) {
  const auto text = base::read_file(file, kMaxBytes);
  if (!text.ok()) return {};
  auto measurement = measurement_from_json(*text);
  if (!measurement.ok()) return {};
  return *std::move(measurement);
}

/// Whether a measurement under `load` replaces one that was taken under the load `before`.
bool is_quieter(double load, double before) {
  return load <= topology::kMaxLoad || 1 - load >= 2 * (1 - before);
}

Status keep(const Result<fs::path>& folder, const KeptMeasurement& one, std::string_view kind) {
  if (!folder.ok()) return folder.status();
  HANJI_RETURN_IF_ERROR(base::make_directories(*folder));
  return base::write_file_atomic(measurement_file(*folder, kind, one.key), to_json(one));
}

}  // namespace

std::string to_json(const KeptMeasurement& one) {
  return base::dump(base::Json{{"key", base::parse_json(one.key).or_throw()},
                               {"measured_at", one.mark.measured_at},
                               {"load", one.mark.load},
                               {"probe", one.mark.probe},
                               {"value", base::parse_json(one.value).or_throw()}});
}

Result<KeptMeasurement> measurement_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 16, kMaxBytes));
  const bool whole = json.is_object() && json.size() == 5 && json.contains("key") &&
                     json.contains("value") && json.contains("measured_at") &&
                     json.contains("load") && json.contains("probe") &&
                     json["measured_at"].is_number_integer() && json["load"].is_number() &&
                     json["probe"].is_number();
  if (!whole) return base::corrupt("no measurement with its key, time, load, probe and value");
  const auto load = json["load"].get<double>(), probe = json["probe"].get<double>();
  if (!std::isfinite(load) || !std::isfinite(probe)) {
    return base::corrupt("the load or probe of a measurement is no number");
  }
  return KeptMeasurement{.key = base::dump(json["key"]),
                         .mark = {json["measured_at"].get<int64_t>(), load, probe},
                         .value = base::dump(json["value"])};
}

std::string why_again(const Mark& mark, int64_t now_seconds, double probe) {
  if (std::string load = topology::describe_load(mark.load); !load.empty()) return load;
  const int64_t age = now_seconds - mark.measured_at;
  if (age > cost::kMaxDays * kDaySeconds) {
    return fmt::format("it is {} old, over {}", base::counted(age / kDaySeconds, "day"),
                       cost::kMaxDays);
  }
  if (age < -kDaySeconds) return "it is from the future: a clock was set";
  if (mark.probe <= 0 || probe <= 0) return "";
  const double ratio = probe / mark.probe;
  if (ratio > kMaxSpeedRatio || ratio < 1 / kMaxSpeedRatio) {
    return fmt::format("the same work takes {:.2f} times as long now", ratio);
  }
  return "";
}

fs::path measurement_file(const fs::path& folder, std::string_view kind, std::string_view key) {
  return folder / fmt::format("{}-{}.json", kind, base::Sha256().update(key).hex().substr(0, 16));
}

std::vector<KeptMeasurement> list_measurements(const fs::path& folder, std::string_view kind) {
  std::vector<KeptMeasurement> found;
  const auto files = base::list_files(folder);
  if (!files.ok()) return found;
  for (const fs::path& file : *files) {
    if (!file.filename().string().starts_with(fmt::format("{}-", kind))) continue;
    if (auto one = read_measurement(file)) found.push_back(*std::move(one));
  }
  return found;
}

Mark mark_while(const std::function<void()>& measure) {
  const int64_t begin_ns = base::now_ns();
  const auto begin = topology::read_cpu_times();
  measure();
  const int64_t rest_ns = kShortestNs - (base::now_ns() - begin_ns);
  if (rest_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(rest_ns));
  const auto end = topology::read_cpu_times();
  const bool seen = begin.ok() && end.ok();  // a host without /proc/stat shows no load
  return {now_seconds(), seen ? topology::load_of_others(*begin, *end) : 0};
}

double load_of_late() {
  static std::mutex mutex;
  static std::optional<double> load;
  static int64_t looked_ns = 0;
  const std::lock_guard lock(mutex);
  if (!load || base::now_ns() - looked_ns > kLookNs) {
    load = mark_while([] {}).load;
    looked_ns = base::now_ns();
  }
  return *load;
}

Result<MarkedValue> measured_once(const Result<fs::path>& folder, const MeasureOnce& what) {
  std::optional<KeptMeasurement> before;
  if (folder.ok()) before = read_measurement(measurement_file(*folder, what.kind, what.key));
  if (before && !what.is_sound(before->value)) before.reset();
  const auto probe = [&] { return what.probe ? what.probe() : 0; };
  const bool was_disturbed = before && before->mark.load > topology::kMaxLoad;
  // A measurement that would be discarded is not taken.
  const bool stays = was_disturbed
                         ? !is_quieter(what.look(), before->mark.load)
                         : before && why_again(before->mark, now_seconds(), probe()).empty();
  if (stays) return MarkedValue{before->value, before->mark.load};
  Result<std::string> found = base::internal("nothing was measured");
  Mark mark = what.mark([&] { found = what.measure(before ? before->value : ""); });
  if (!found.ok()) return found.status();
  if (before && !is_quieter(mark.load, before->mark.load)) {
    return MarkedValue{before->value, before->mark.load};
  }
  mark.probe = probe();
  const Status kept = keep(folder, {what.key, mark, *found}, what.kind);
  if (!kept.ok() && what.on_unkept) what.on_unkept(kept);
  return MarkedValue{*std::move(found), mark.load};
}

}  // namespace hanji::train
