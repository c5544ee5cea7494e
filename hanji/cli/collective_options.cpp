#include "hanji/cli/collective_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cli/option_mistakes.h"

namespace hanji::cli {
namespace {

using schedule::Routine;

// "a, b, c; did you mean b?"
std::string choices(std::string_view word, const std::vector<std::string_view>& names) {
  const auto meant = base::nearest(word, names);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

// Those that have algorithms of messages; where calls are explained, barrier and send too.
std::vector<std::string_view> routine_names(bool explains) {
  std::vector<std::string_view> names;
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    const bool is_explained =
        explains && (routine == Routine::kBarrier || routine == Routine::kSend);
    if (is_explained || !schedule::message_algorithms(routine).empty()) {
      names.push_back(name_of(routine));
    }
  }
  return names;
}

Result<Routine> find_routine(const CollectiveOptions& given) {
  const std::string& name = given.routine;
  auto names = routine_names(given.explains);
  if (name.empty()) {
    return base::invalid_argument(fmt::format("name a routine: {}", fmt::join(names, ", ")));
  }
  const auto found = schedule::routine_named(name);
  if (found && std::find(names.begin(), names.end(), name) != names.end()) return *found;
  names.insert(names.end(), given.verbs.begin(), given.verbs.end());
  return base::invalid_argument(fmt::format("unknown routine '{}'; {}: {}", name,
                                            given.verbs.empty() ? "routines" : "what is explained",
                                            choices(name, names)));
}

/// Reads flags; what is wrong with one is kept, and its value of before goes on.
class FlagReader {
 public:
  template <class T, class Value>
  void read(const char* flag, Result<T> value, Value& into) {
    if (value.ok()) {
      into = static_cast<Value>(*value);
    } else {
      mistakes_.add(value.status().at(flag));
    }
  }

  void in_range(const char* flag, int value, int least, int most, int& into) {
    into = std::clamp(value, least, most);
    if (into == value) return;
    refuse(fmt::format("{} is {}; it is {} to {}", flag, value, least, most));
  }

  void refuse(std::string words) { mistakes_.add(std::move(words)); }
  void add(const Status& mistake) { mistakes_.add(mistake); }
  void throw_if_any() const { mistakes_.throw_if_any(); }

 private:
  OptionMistakes mistakes_;
};

void read_size(const CollectiveOptions& given, FlagReader& reader, cost::Question& question) {
  if (question.routine == Routine::kBarrier) {
    if (!given.bytes.empty()) reader.refuse("a barrier moves no bytes; leave out the size");
    return;
  }
  const Result<int64_t> size =
      base::parse_bytes(given.bytes.empty() ? std::string(kDefaultSize) : given.bytes);
  if (!size.ok()) return reader.add(size.status().at("the size"));
  if (*size < 1 || *size > int64_t{1} << 40) {
    return reader.refuse(fmt::format("the size is {}; it is 1 B to 1 TiB", given.bytes));
  }
  question.bytes = *size;
  const int64_t most = schedule::max_count(question.ranks);
  if (!has_shares(question.routine) && *size > most) {
    reader.refuse(fmt::format("the size is {}; of {} it is at most {}", given.bytes,
                              base::counted(question.ranks, "rank"), base::counted(most, "byte")));
  }
}

void read_network(const CollectiveOptions& given, FlagReader& reader, cost::Network& network) {
  if (!given.bandwidth.empty()) {
    reader.read("--bandwidth", parse_rate(given.bandwidth), network.bytes_per_second);
  }
  if (!given.latency.empty()) {
    reader.read("--latency", base::parse_seconds(given.latency), network.latency_seconds);
  }
  if (!given.reduce.empty()) {
    reader.read("--reduce", parse_rate(given.reduce), network.reduce_bytes_per_second);
  }
}

void read_segments(const CollectiveOptions& given, FlagReader& reader, cost::Question& question) {
  reader.in_range("--segments", given.segments, 0, cost::kMaxSegments, question.segments);
  if (given.chunk.empty()) return;
  const Result<int64_t> size = base::parse_bytes(given.chunk);
  if (!size.ok()) return reader.add(size.status().at("--chunk"));
  const int64_t least = (question.bytes + cost::kMaxSegments - 1) / cost::kMaxSegments;
  if (*size < std::max<int64_t>(1, least)) {
    return reader.refuse(
        fmt::format("--chunk is {}; at least {} bytes, so that there are at most {} segments",
                    given.chunk, least, cost::kMaxSegments));
  }
  question.segments = static_cast<int>((question.bytes + *size - 1) / *size);
}

void read_hosts(const CollectiveOptions& given, FlagReader& reader, cost::Question& question) {
  if (given.ranks_per_host == 0) return;
  reader.in_range("--ranks-per-host", given.ranks_per_host, 1, question.ranks,
                  question.ranks_per_host);
  if (question.ranks % question.ranks_per_host == 0) return;
  reader.refuse(fmt::format("--ranks-per-host is {}, which does not divide {}",
                            given.ranks_per_host, base::counted(question.ranks, "rank")));
}

Result<schedule::Algorithm> find_algorithm(Routine routine, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& one : schedule::message_algorithms(routine)) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  return base::invalid_argument(fmt::format("{} has no algorithm '{}'; algorithms: {}",
                                            name_of(routine), name, choices(name, names)));
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
  verb.add_option("routine", &routine, fmt::format("{}", fmt::join(routine_names(explains), ", ")))
      .type_name("ROUTINE");
  verb.add_option("-p,--ranks", &ranks,
                  fmt::format("how many take part, 1 to {}", schedule::kMaxRanks))
      .type_name("N")
      .show_default();
  verb.add_option("--root", &root,
                  explains ? "root rank of broadcast, reduce, gather, scatter; the sender of send, "
                             "to the rank after it"
                           : "root rank of broadcast, reduce, gather, scatter")
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
  FlagReader reader;
  const Result<Routine> found = find_routine(*this);
  if (found.ok()) question.routine = *found;
  if (!found.ok()) reader.add(found.status());
  const int least = question.routine == Routine::kSend ? 2 : 1;
  reader.in_range("--ranks", ranks, least, schedule::kMaxRanks, question.ranks);
  reader.in_range("--root", root, 0, question.ranks - 1, question.root);
  read_size(*this, reader, question);
  read_network(*this, reader, question.network);
  read_segments(*this, reader, question);
  read_hosts(*this, reader, question);
  if (found.ok() && !algorithm.empty()) {
    if (const auto named = find_algorithm(*found, algorithm); !named.ok())
      reader.add(named.status());
  }
  reader.throw_if_any();
  return question;
}

std::optional<schedule::Algorithm> CollectiveOptions::named_algorithm() const {
  if (algorithm.empty()) return std::nullopt;
  return find_algorithm(find_routine(*this).or_throw(), algorithm).or_throw();
}

}  // namespace hanji::cli
