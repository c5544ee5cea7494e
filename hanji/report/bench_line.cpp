#include "hanji/report/bench_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

using base::Json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// With five digits: more would not repeat.
Json seconds_of(double seconds) { return Json(std::stod(fmt::format("{:.5g}", seconds))); }

Json as_json(const BenchPeer& peer) {
  Json json;
  if (peer.seconds.empty()) {
    json["seconds_median"] = nullptr;
    json["reason"] = peer.reason;
    return json;
  }
  json["seconds_median"] = seconds_of(median(peer.seconds));
  json["seconds_p99"] = seconds_of(quantile(peer.seconds, .99));
  const BenchRatio& ratio = peer.ratio;
  json["ratio"] = or_null(ratio.ratio);
  if (ratio.ratio) {
    json["ratio_interval"] = {ratio.interval.low, ratio.interval.high};
    json["interval_confidence"] = ratio.interval.confidence;
    json["sign_test"] = ratio.sign_test;
  } else {
    json["reason"] = ratio.reason;
  }
  json["wins"] = ratio.wins;
  json["losses"] = ratio.losses;
  json["ties"] = ratio.ties;
  json["unsteady_pairs"] = ratio.unsteady;
  return json;
}

std::optional<double> error_percent(const BenchLine& line) {
  if (!line.predicted_seconds || line.seconds.empty()) return std::nullopt;
  const double measured = median(line.seconds);
  return 100 * (*line.predicted_seconds - measured) / measured;
}

std::string number(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string wrong_of(const BenchLine& line) {
  return line.wrong ? std::to_string(*line.wrong) : "N/A";
}

// The columns of one form.
std::string half_row(const BenchLine& line) {
  if (line.seconds.empty()) {
    return fmt::format(" {:>9} {:>9} {:>6} {:>6} {:>5} {:>6} {:>9} {:>9} {:>6}", "-", "-", "-", "-",
                       "-", wrong_of(line), line.algorithm, "-", "-");
  }
  const double time = median(line.seconds);
  const double bandwidth = static_cast<double>(size_of(line.call)) / time * 1e-9;
  const auto predicted =
      line.predicted_seconds ? std::optional<double>(*line.predicted_seconds * 1e6) : std::nullopt;
  return fmt::format(" {:9.2f} {:9.2f} {:6.2f} {:6.2f} {:>5} {:>6} {:>9} {:>9} {:>6}", time * 1e6,
                     quantile(line.seconds, .99) * 1e6, bandwidth,
                     bandwidth * bus_factor(line.call.routine, line.call.ranks),
                     number(line.percent_of_limit, 0), wrong_of(line), line.algorithm,
                     number(predicted, 2), number(error_percent(line), 0));
}

std::string peer_row(const BenchLine& line, const BenchPeer& peer) {
  const std::string form = line.call.in_place ? "in place" : "out of place";
  std::string row = fmt::format("  {} beside {}, {}: ", peer.name, name_of(line.placement), form);
  if (peer.seconds.empty()) return row + peer.reason;
  row += fmt::format("{:.2f} us, p99 {:.2f}; ", median(peer.seconds) * 1e6,
                     quantile(peer.seconds, .99) * 1e6);
  const BenchRatio& ratio = peer.ratio;
  if (!ratio.ratio) return row + ratio.reason;
  return row + fmt::format(
                   "{:.2f} times ours ({:.2f} to {:.2f}), slower in {} of {}, p = "
                   "{:.1g}{}",
                   *ratio.ratio, ratio.interval.low, ratio.interval.high, ratio.wins,
                   base::counted(ratio.wins + ratio.losses, "pair"), ratio.sign_test,
                   ratio.unsteady == 0 ? "" : fmt::format("; {} unsteady", ratio.unsteady));
}

constexpr int kCallColumns = 55, kFormColumns = 75;  // Of what was called, and of a form's results.

int num_forms(schedule::Routine routine) {
  return (has_in_place(routine) ? 1 : 0) + (has_out_of_place(routine) ? 1 : 0);
}

bool fits_beside(int forms, int columns) { return kCallColumns + forms * kFormColumns <= columns; }

std::string results() {
  return fmt::format(" {:>9} {:>9} {:>6} {:>6} {:>5} {:>6} {:>9} {:>9} {:>6}", "time", "p99",
                     "algbw", "busbw", "%lim", "#wrong", "alg", "pred", "err%");
}

std::string units() {
  return fmt::format(" {:>9} {:>9} {:>6} {:>6} {:>5} {:>6} {:>9} {:>9} {:>6}", "(us)", "(us)",
                     "(GB/s)", "(GB/s)", "", "", "", "(us)", "");
}

}  // namespace

std::string to_json(const BenchLine& line) {
  const BenchCase& call = line.call;
  const bool timed = !line.seconds.empty();
  Json json;
  json["routine"] = schedule::name_of(call.routine);
  json["bytes"] = size_of(call);
  json["ranks"] = call.ranks;
  json["engine"] = line.engine;
  json["algorithm"] = line.algorithm;
  json["placement"] = name_of(line.placement);
  json["seconds_median"] = timed ? seconds_of(median(line.seconds)) : Json();
  json["seconds_p99"] = timed ? seconds_of(quantile(line.seconds, .99)) : Json();
  json["predicted_seconds"] = or_null(line.predicted_seconds);
  json["percent_of_limit"] = or_null(line.percent_of_limit);
  json["wrong"] = or_null(line.wrong);
  json["peers"] = Json::object();
  for (const BenchPeer& peer : line.peers) json["peers"][peer.name] = as_json(peer);
  json["in_place"] = call.in_place;
  json["count"] = count_of(call);
  json["type"] = base::name_of(call.dtype);
  json["redop"] = schedule::reduces(call.routine) ? Json(schedule::name_of(call.op)) : Json();
  json["root"] = has_root(call.routine) ? Json(call.root) : Json();
  if (timed) {
    const Interval interval = median_interval(line.round_medians);
    const double bandwidth = static_cast<double>(size_of(call)) / median(line.seconds);
    json["seconds_interval"] = {seconds_of(interval.low), seconds_of(interval.high)};
    json["algbw_bytes_per_second"] = bandwidth;
    json["busbw_bytes_per_second"] = bandwidth * bus_factor(call.routine, call.ranks);
    json["rounds"] = line.round_medians.size();
    json["calls"] = line.seconds.size();
  }
  json["prediction_error_percent"] = or_null(error_percent(line));
  json["predicted_by"] = line.predicted_by.empty() ? Json() : Json(line.predicted_by);
  json["probe_seconds"] = line.probe_seconds > 0 ? seconds_of(line.probe_seconds) : Json();
  return base::dump(json) + "\n";
}

std::string bench_note(const std::string& text, int columns) {
  constexpr int kHanging = 4;
  const std::string wrapped = base::wrap(text, columns - 2, kHanging);
  std::string note;
  for (const std::string_view line : base::split(wrapped, '\n'))
    note += fmt::format("# {}\n", line);
  return note;
}

std::string bench_heading(schedule::Routine routine, int columns) {
  std::string names = fmt::format("#{:>11} {:>11} {:>8} {:>7} {:>4} {:>7}", "size", "count", "type",
                                  "redop", "root", "place");
  std::string below =
      fmt::format("#{:>11} {:>11} {:>8} {:>7} {:>4} {:>7}", "(B)", "(elements)", "", "", "", "");
  std::string above(names.size(), ' ');
  above[0] = '#';
  const bool fits = fits_beside(num_forms(routine), columns);
  if (!fits) names += "\n" + below;
  for (const bool in_place : {false, true}) {
    if (!(in_place ? has_in_place(routine) : has_out_of_place(routine))) continue;
    const std::string form = in_place ? "in place" : "out of place";
    if (fits) {
      above += fmt::format(" {:^74}", form);
      names += " " + results();
      below += " " + units();
    } else {
      names += fmt::format("\n# {}\n#{}\n#{}", form, results(), units());
    }
  }
  return fits ? above + "\n" + names + "\n" + below + "\n" : names + "\n";
}

std::string bench_rows(const std::vector<BenchLine>& lines, int columns) {
  std::string text;
  std::string notes;
  const bool fits = lines.empty() || fits_beside(num_forms(lines[0].call.routine), columns);
  for (size_t i = 0; i < lines.size(); ++i) {
    const BenchLine& line = lines[i];
    const bool second_half = i > 0 && lines[i - 1].placement == line.placement &&
                             lines[i - 1].call.in_place != line.call.in_place;
    if (!second_half) {
      const BenchCase& call = line.call;
      text += fmt::format("{}{:>12} {:>11} {:>8} {:>7} {:>4} {:>7}", i == 0 ? "" : "\n",
                          size_of(call), count_of(call), base::name_of(call.dtype),
                          reduces(call.routine) ? schedule::name_of(call.op) : "none",
                          has_root(call.routine) ? call.root : -1, name_of(line.placement));
    }
    text += (fits ? " " : "\n ") + half_row(line);
    for (const BenchPeer& peer : line.peers) {
      if (peer.asked) notes += bench_note(peer_row(line, peer), columns);
    }
  }
  return text + "\n" + notes;
}

}  // namespace hanji::report
