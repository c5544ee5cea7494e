#include "hanji/report/bench_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace hanji::report {
namespace {

template <class T, int kCount>
bool find_named(const std::string& word, T& value) {
  for (int i = 0; i < kCount; ++i) {
    value = static_cast<T>(i);
    if (name_of(value) == word) return true;
  }
  return false;
}

double over_ranks(const std::vector<double>& times, Average average) {
  switch (average) {
    case Average::kRank0: return times[0];
    case Average::kMin: return *std::min_element(times.begin(), times.end());
    case Average::kMax: return *std::max_element(times.begin(), times.end());
    case Average::kMean: break;
  }
  double sum = 0;
  for (const double time : times) sum += time;
  return sum / static_cast<double>(times.size());
}

}  // namespace

std::string_view name_of(BenchPlacement placement) {
  return placement == BenchPlacement::kHeap ? "heap" : "private";
}

std::string BenchRequest::to_line() const {
  return fmt::format("measure {} {} {} {} {} {:d} {:d} {} {} {} {} {:d} {} {} {} {}",
                     schedule::name_of(call.routine), count_of(call), base::name_of(call.dtype),
                     schedule::name_of(call.op), call.root, call.in_place, refill, slots,
                     scrub_bytes, calls, warmup, check, engine, name_of(placement), corrupt, table);
}

Result<BenchRequest> parse_request(std::string_view line, int ranks) {
  std::istringstream words{std::string(line)};
  BenchRequest request;
  std::string verb, routine, dtype, op, placement;
  int64_t count = 0;
  words >> verb >> routine >> count >> dtype >> op >> request.call.root >> request.call.in_place >>
      request.refill >> request.slots >> request.scrub_bytes >> request.calls >> request.warmup >>
      request.check >> request.engine >> placement >> request.corrupt >> request.table;
  const auto found = schedule::routine_named(routine);
  const bool named = find_named<DType, base::kNumDTypes>(dtype, request.call.dtype) &&
                     find_named<schedule::ReduceOp, schedule::kNumReduceOps>(op, request.call.op) &&
                     find_named<BenchPlacement, 2>(placement, request.placement);
  if (verb != "measure" || !words || !found || !named || count < 0 || request.slots < 1) {
    return base::invalid_argument(fmt::format("no request of a bench: '{}'", line));
  }
  request.call.routine = *found;
  request.call.ranks = ranks;
  request.call.bytes = count * static_cast<int64_t>(base::size_of(request.call.dtype)) *
                       (has_shares(*found) ? ranks : 1);
  return request;
}

std::string BenchAnswer::to_line() const {
  if (!error.empty()) {
    std::string words = "error " + error;
    std::replace(words.begin(), words.end(), '\n', ' ');
    return words;
  }
  std::string line;
  for (const double time : seconds) line += fmt::format("{:.9f} ", time);
  return line + fmt::format("wrong {}", wrong);
}

Result<BenchAnswer> parse_answer(std::string_view line) {
  BenchAnswer answer;
  if (line.starts_with("error ")) {
    answer.error = line.substr(6);
    return answer;
  }
  std::istringstream words{std::string(line)};
  for (double time = 0; words >> time;) answer.seconds.push_back(time);
  words.clear();
  std::string word;
  if (words >> word >> answer.wrong && word == "wrong") return answer;
  return base::corrupt(
      fmt::format("no answer of a rank that is measured: '{}'", line.substr(0, 80)));
}

std::vector<double> over_ranks(const std::vector<BenchAnswer>& answers, Average average) {
  std::vector<double> result;
  for (size_t call = 0; call < answers[0].seconds.size(); ++call) {
    std::vector<double> times;
    for (const BenchAnswer& answer : answers) times.push_back(answer.seconds[call]);
    result.push_back(over_ranks(times, average));
  }
  return result;
}

}  // namespace hanji::report
