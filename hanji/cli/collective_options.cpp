#include "hanji/cli/collective_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::cli {
namespace {

using schedule::Routine;

[[noreturn]] void refuse(std::string message) {
  throw Error(base::invalid_argument(std::move(message)));
}

// "a, b, c; did you mean b?"
std::string choices(std::string_view word, const std::vector<std::string_view>& names) {
  const auto meant = base::nearest(word, names);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

// Those that have algorithms of messages: neither barrier nor tree_reduce.
std::vector<std::string_view> routine_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (!schedule::message_algorithms(routine).empty()) names.push_back(name_of(routine));
  }
  return names;
}

Routine find_routine(const std::string& name) {
  const auto names = routine_names();
  if (name.empty()) refuse(fmt::format("name a routine: {}", fmt::join(names, ", ")));
  const auto found = schedule::routine_named(name);
  if (found && std::find(names.begin(), names.end(), name) != names.end()) return *found;
  refuse(fmt::format("unknown routine '{}'; routines: {}", name, choices(name, names)));
}

// The value of a flag, or an error that says which.
template <class T>
T of_flag(const char* flag, Result<T> value) {
  if (!value.ok()) throw Error(value.status().at(flag));
  return *std::move(value);
}

int in_range(const char* flag, int value, int least, int most) {
  if (value >= least && value <= most) return value;
  refuse(fmt::format("{} is {}; it is {} to {}", flag, value, least, most));
}

}  // namespace

Result<double> parse_rate(std::string_view text) {
  const auto ends_with = [&](std::string_view end) {
    if (!text.ends_with(end)) return false;
    text.remove_suffix(end.size());
    return true;
  };
  const std::string whole(text);
  const bool is_bits = ends_with("bit/s");
  if (is_bits || ends_with("B/s")) {
    const auto value = base::parse_bytes(std::string(text) + "B");
    if (value.ok() && *value > 0) return static_cast<double>(*value) / (is_bits ? 8 : 1);
  }
  return base::invalid_argument(fmt::format(
      "'{}' is no rate above 0; write a number with kB/s, MB/s, GiB/s or Gbit/s, such as 1MB/s",
      whole));
}

void CollectiveOptions::add_to(Verb verb) {
  verb.add_option("routine", &routine, fmt::format("{}", fmt::join(routine_names(), ", ")))
      .type_name("ROUTINE");
  verb.add_option("-p,--ranks", &ranks,
                  fmt::format("how many take part, 1 to {}", schedule::kMaxRanks))
      .type_name("N")
      .show_default();
  verb.add_option("--root", &root, "root rank of broadcast, reduce, gather, scatter")
      .type_name("RANK")
      .show_default();
  verb.add_option("--bandwidth", &bandwidth, "of every link, each way: 1MB/s, 10Gbit/s")
      .type_name("RATE");
  verb.add_option("--latency", &latency, "of every message: 10us; default: none").type_name("TIME");
  verb.add_option("--reduce", &reduce, "bytes that a rank adds up: 5GB/s; default: no time")
      .type_name("RATE");
  const Option pieces =
      verb.add_option("--segments", &segments, "of pipelined algorithms; default: the best number")
          .type_name("K");
  verb.add_option("--chunk", &chunk, "size of such a segment").type_name("SIZE").excludes(pieces);
  verb.add_option("--ranks-per-host", &ranks_per_host, "also tries the hierarchical all_reduce")
      .type_name("N");
}

cost::Question CollectiveOptions::question() const {
  cost::Question question;
  question.routine = find_routine(routine);
  question.bytes = of_flag("the size", base::parse_bytes(bytes));
  if (question.bytes < 1 || question.bytes > int64_t{1} << 40) {
    refuse(fmt::format("the size is {}; it is 1 B to 1 TiB", bytes));
  }
  question.ranks = in_range("--ranks", ranks, 1, schedule::kMaxRanks);
  question.root = in_range("--root", root, 0, ranks - 1);
  if (!has_shares(question.routine) && question.bytes > schedule::max_count(ranks)) {
    refuse(fmt::format("the size is {}; of {} ranks it is at most {}", bytes, ranks,
                       base::format_bytes(schedule::max_count(ranks))));
  }
  if (!bandwidth.empty()) {
    question.network.bytes_per_second = of_flag("--bandwidth", parse_rate(bandwidth));
  }
  if (!latency.empty()) {
    question.network.latency_seconds = of_flag("--latency", base::parse_seconds(latency));
  }
  if (!reduce.empty()) {
    question.network.reduce_bytes_per_second = of_flag("--reduce", parse_rate(reduce));
  }
  question.segments = in_range("--segments", segments, 0, cost::kMaxSegments);
  if (!chunk.empty()) {
    const int64_t size = of_flag("--chunk", base::parse_bytes(chunk));
    const int64_t least = (question.bytes + cost::kMaxSegments - 1) / cost::kMaxSegments;
    if (size < least) {
      refuse(fmt::format("--chunk is {}; at least {} bytes, so that there are at most {} segments",
                         chunk, least, cost::kMaxSegments));
    }
    question.segments = static_cast<int>((question.bytes + size - 1) / size);
  }
  if (ranks_per_host != 0) {
    question.ranks_per_host = in_range("--ranks-per-host", ranks_per_host, 1, ranks);
    if (ranks % ranks_per_host != 0) {
      refuse(fmt::format("--ranks-per-host is {}, which does not divide {} ranks", ranks_per_host,
                         ranks));
    }
  }
  return question;
}

std::optional<schedule::Algorithm> CollectiveOptions::named_algorithm() const {
  if (algorithm.empty()) return std::nullopt;
  std::vector<std::string_view> names;
  for (const auto& one : schedule::message_algorithms(find_routine(routine))) {
    if (one.name == algorithm) return one;
    names.push_back(one.name);
  }
  refuse(fmt::format("{} has no algorithm '{}'; algorithms: {}", routine, algorithm,
                     choices(algorithm, names)));
}

}  // namespace hanji::cli
