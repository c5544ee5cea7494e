#include "hanji/report/step_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using base::Json;

double seconds_of(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

/// Whole nanoseconds: more digits would say nothing.
Json rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }
Json rounded(const std::optional<double>& seconds) { return seconds ? rounded(*seconds) : Json(); }

void add(std::optional<double>& sum, const std::optional<double>& more) {
  if (!sum || !more) return sum.reset();
  *sum += *more;
}

void keep_longest(std::vector<WaitAccount>& waits) {
  std::ranges::stable_sort(waits, std::greater(), &WaitAccount::seconds);
  if (waits.size() > kMaxWaits) waits.resize(kMaxWaits);
}

std::string_view rank_prefix() { return "waiting for rank "; }

/// The events of a step, in the order in which they ended.
class EventSums {
 public:
  EventSums(StepAccount& account, const trace::Recorder& recorder)
      : account_(account), recorder_(recorder) {}

  void see(const trace::Event& event) {
    switch (event.category) {
      case trace::Category::kSkew: return waits_.push_back(event);
      case trace::Category::kCommunication: return see_call(event);
      case trace::Category::kCompute: return see_part(event);
      default: return;
    }
  }

  void finish() {
    routines_.resize(waits_.size());
    for (size_t i = 0; i < waits_.size(); ++i) add_wait(waits_[i], routines_[i]);
    for (const auto& [of, seconds] : wait_seconds_) {
      account_.waits.push_back({of.first, of.second, seconds});
    }
    keep_longest(account_.waits);
  }

 private:
  void see_call(const trace::Event& event) {
    const std::string name = recorder_.name(event.name);
    auto found = std::ranges::find(account_.calls, name, &CallAccount::routine);
    if (found == account_.calls.end()) {
      account_.calls.push_back({.routine = name});
      found = account_.calls.end() - 1;
    }
    ++found->count;
    found->bytes += event.bytes;
    found->seconds += seconds_of(event.end_ns - event.start_ns);
    routines_.resize(waits_.size());
    for (size_t i = 0; i < waits_.size(); ++i) {
      const trace::Event& wait = waits_[i];
      const bool is_within =
          wait.group == event.group && wait.end_ns >= event.start_ns && wait.end_ns <= event.end_ns;
      if (is_within && routines_[i].empty()) routines_[i] = name;
    }
  }

  void see_part(const trace::Event& event) {
    const std::string name = recorder_.name(event.name);
    const std::array parts = {std::pair{"forward", &StepAccount::forward},
                              std::pair{"backward", &StepAccount::backward},
                              std::pair{"optimizer", &StepAccount::optimizer}};
    const auto part =
        std::ranges::find_if(parts, [&](const auto& one) { return name.starts_with(one.first); });
    if (part == parts.end()) return;
    int64_t waited = 0;
    for (const trace::Event& wait : waits_) {
      const int64_t begin = std::max(wait.start_ns, event.start_ns);
      waited += std::max<int64_t>(0, std::min(wait.end_ns, event.end_ns) - begin);
    }
    account_.*part->second += seconds_of(event.end_ns - event.start_ns - waited);
  }

  void add_wait(const trace::Event& wait, const std::string& routine) {
    const std::string name = recorder_.name(wait.name);
    if (!name.starts_with(rank_prefix())) return;
    const int rank = std::atoi(name.c_str() + rank_prefix().size());
    wait_seconds_[{routine, rank}] += seconds_of(wait.end_ns - wait.start_ns);
  }

  StepAccount& account_;
  const trace::Recorder& recorder_;
  std::vector<trace::Event> waits_;
  std::vector<std::string> routines_;  ///< Routine of each wait.
  std::map<std::pair<std::string, int>, double> wait_seconds_;
};

Json array_of(const StepAccount& account, std::string_view member) {
  Json all = Json::array();
  if (member == "axes") {
    for (const AxisAccount& one : account.axes) {
      all.push_back(
          {one.axis, one.calls, one.bytes, rounded(one.exposed_transfer), rounded(one.skew)});
    }
  } else if (member == "calls") {
    for (const CallAccount& one : account.calls) {
      all.push_back({one.routine, one.count, one.bytes, rounded(one.seconds)});
    }
  } else {
    for (const WaitAccount& one : account.waits) {
      all.push_back({one.routine, one.rank, rounded(one.seconds)});
    }
  }
  return all;
}

/// The member, which must be there.
Result<const Json*> member(const Json& json, const char* name) {
  if (json.is_object() && json.contains(name)) return &json[name];
  return base::corrupt(std::string(name) + " is missing");
}

Status wrong(const char* name) { return base::corrupt(std::string(name) + " is of another type"); }

Status read(const Json& json, const char* name, int64_t& value) {
  HANJI_ASSIGN_OR_RETURN(const Json* const found, member(json, name));
  if (!found->is_number_integer()) return wrong(name);
  value = found->get<int64_t>();
  return {};
}

Status read(const Json& json, const char* name, double& value) {
  HANJI_ASSIGN_OR_RETURN(const Json* const found, member(json, name));
  if (!found->is_number()) return wrong(name);
  value = found->get<double>();
  return {};
}

Status read(const Json& json, const char* name, std::optional<double>& value) {
  HANJI_ASSIGN_OR_RETURN(const Json* const found, member(json, name));
  if (found->is_null()) return {};
  value.emplace();
  return read(json, name, *value);
}

/// The rows of an array of arrays whose elements have the types of `sample`.
Result<std::vector<Json>> rows_of(const Json& json, const char* name, const Json& sample) {
  HANJI_ASSIGN_OR_RETURN(const Json* const found, member(json, name));
  if (!found->is_array()) return wrong(name);
  for (const Json& row : *found) {
    if (!row.is_array() || row.size() != sample.size()) return wrong(name);
    for (size_t i = 0; i < sample.size(); ++i) {
      const bool fits = sample[i].is_null()             ? row[i].is_number() || row[i].is_null()
                        : sample[i].is_string()         ? row[i].is_string()
                        : sample[i].is_number_integer() ? row[i].is_number_integer()
                                                        : row[i].is_number();
      if (!fits) return wrong(name);
    }
  }
  return std::vector<Json>(found->begin(), found->end());
}

std::optional<double> seconds_in(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

}  // namespace

std::filesystem::path account_file(int rank) {
  return std::filesystem::path(kAccountFolder) / fmt::format("rank.{}.jsonl", rank);
}

std::optional<double> compute_seconds(const StepAccount& account) {
  if (!account.exposed_transfer || !account.skew) return std::nullopt;
  return account.seconds - account.data - *account.exposed_transfer - *account.skew;
}

namespace {

/// The one of `sums` for which `is_same` holds, or a new one at their end, which is a copy of `first`; nullptr then.
template <class One, class IsSame>
One* known_of(std::vector<One>& sums, const One& first, const IsSame& is_same) {
  const auto found = std::ranges::find_if(sums, is_same);
  if (found != sums.end()) return &*found;
  sums.push_back(first);
  return nullptr;
}

void add_axes(StepAccount& sum, const StepAccount& later) {
  for (const AxisAccount& one : later.axes) {
    const auto is_same = [&](const AxisAccount& known) { return known.axis == one.axis; };
    AxisAccount* const known = known_of(sum.axes, one, is_same);
    if (known == nullptr) continue;
    known->calls += one.calls;
    known->bytes += one.bytes;
    add(known->exposed_transfer, one.exposed_transfer);
    add(known->skew, one.skew);
  }
}

void add_calls(StepAccount& sum, const StepAccount& later) {
  for (const CallAccount& one : later.calls) {
    const auto is_same = [&](const CallAccount& known) { return known.routine == one.routine; };
    CallAccount* const known = known_of(sum.calls, one, is_same);
    if (known == nullptr) continue;
    known->count += one.count;
    known->bytes += one.bytes;
    known->seconds += one.seconds;
  }
}

void add_waits(StepAccount& sum, const StepAccount& later) {
  for (const WaitAccount& one : later.waits) {
    const auto is_same = [&](const WaitAccount& known) {
      return known.routine == one.routine && known.rank == one.rank;
    };
    if (WaitAccount* const known = known_of(sum.waits, one, is_same)) known->seconds += one.seconds;
  }
  keep_longest(sum.waits);
}

}  // namespace

void add(StepAccount& sum, const StepAccount& later) {
  sum.step = later.step;
  sum.steps += later.steps;
  for (double StepAccount::*part :
       {&StepAccount::seconds, &StepAccount::data, &StepAccount::forward, &StepAccount::backward,
        &StepAccount::optimizer, &StepAccount::cpu, &StepAccount::reading}) {
    sum.*part += later.*part;
  }
  add(sum.transfer, later.transfer);
  add(sum.exposed_transfer, later.exposed_transfer);
  add(sum.skew, later.skew);
  add(sum.fetching, later.fetching);
  sum.major_faults += later.major_faults;
  sum.samples += later.samples;
  sum.memory_bytes = later.memory_bytes;
  add_axes(sum, later);
  add_calls(sum, later);
  add_waits(sum, later);
}

uint64_t add_events(StepAccount& account, const trace::Recorder& recorder, uint64_t ticket) {
  EventSums sums(account, recorder);
  const uint64_t next =
      recorder.for_each_since(ticket, [&](const trace::Event& event) { sums.see(event); });
  sums.finish();
  return next;
}

std::string to_json(const StepAccount& account) {
  return base::dump({{"step", account.step},
                     {"steps", account.steps},
                     {"seconds", rounded(account.seconds)},
                     {"data", rounded(account.data)},
                     {"forward", rounded(account.forward)},
                     {"backward", rounded(account.backward)},
                     {"optimizer", rounded(account.optimizer)},
                     {"transfer", rounded(account.transfer)},
                     {"exposed_transfer", rounded(account.exposed_transfer)},
                     {"skew", rounded(account.skew)},
                     {"cpu", rounded(account.cpu)},
                     {"major_faults", account.major_faults},
                     {"samples", account.samples},
                     {"reading", rounded(account.reading)},
                     {"fetching", rounded(account.fetching)},
                     {"memory_bytes", account.memory_bytes},
                     {"axes", array_of(account, "axes")},
                     {"calls", array_of(account, "calls")},
                     {"waits", array_of(account, "waits")}});
}

Result<StepAccount> step_account_from_json(std::string_view line) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(line));
  StepAccount account;
  HANJI_RETURN_IF_ERROR(read(json, "step", account.step));
  HANJI_RETURN_IF_ERROR(read(json, "steps", account.steps));
  HANJI_RETURN_IF_ERROR(read(json, "seconds", account.seconds));
  HANJI_RETURN_IF_ERROR(read(json, "data", account.data));
  HANJI_RETURN_IF_ERROR(read(json, "forward", account.forward));
  HANJI_RETURN_IF_ERROR(read(json, "backward", account.backward));
  HANJI_RETURN_IF_ERROR(read(json, "optimizer", account.optimizer));
  HANJI_RETURN_IF_ERROR(read(json, "transfer", account.transfer));
  HANJI_RETURN_IF_ERROR(read(json, "exposed_transfer", account.exposed_transfer));
  HANJI_RETURN_IF_ERROR(read(json, "skew", account.skew));
  HANJI_RETURN_IF_ERROR(read(json, "cpu", account.cpu));
  HANJI_RETURN_IF_ERROR(read(json, "major_faults", account.major_faults));
  HANJI_RETURN_IF_ERROR(read(json, "samples", account.samples));
  HANJI_RETURN_IF_ERROR(read(json, "reading", account.reading));
  HANJI_RETURN_IF_ERROR(read(json, "fetching", account.fetching));
  HANJI_RETURN_IF_ERROR(read(json, "memory_bytes", account.memory_bytes));
  HANJI_ASSIGN_OR_RETURN(const auto axes, rows_of(json, "axes", {"", 0, 0, nullptr, nullptr}));
  for (const Json& row : axes) {
    account.axes.push_back({row[0].get<std::string>(), row[1].get<int64_t>(), row[2].get<int64_t>(),
                            seconds_in(row[3]), seconds_in(row[4])});
  }
  HANJI_ASSIGN_OR_RETURN(const auto calls, rows_of(json, "calls", {"", 0, 0, 0.5}));
  for (const Json& row : calls) {
    account.calls.push_back({row[0].get<std::string>(), row[1].get<int64_t>(),
                             row[2].get<int64_t>(), row[3].get<double>()});
  }
  HANJI_ASSIGN_OR_RETURN(const auto waits, rows_of(json, "waits", {"", 0, 0.5}));
  for (const Json& row : waits) {
    account.waits.push_back({row[0].get<std::string>(), row[1].get<int>(), row[2].get<double>()});
  }
  if (account.step < 1 || account.steps < 1 || account.steps > account.step) {
    return base::corrupt("step and steps do not fit each other");
  }
  return account;
}

}  // namespace hanji::report
