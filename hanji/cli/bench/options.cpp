#include "hanji/cli/bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "hanji/base/limits.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/shm/reduce.h"

namespace hanji::cli {
namespace {

using report::BenchCase;
using report::BenchPlacement;
using schedule::ReduceOp;
using schedule::Routine;

using Names = std::vector<std::string_view>;

// Reads flags and keeps every mistake, so that all are told at once.
class Reader {
 public:
  const std::vector<std::string>& mistakes() const { return mistakes_; }

  void refuse(std::string mistake) { mistakes_.push_back(std::move(mistake)); }

  int64_t number(const char* flag, const std::string& text, int64_t otherwise, int64_t least,
                 int64_t most) {
    if (text.empty()) return otherwise;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= least &&
        value <= most) {
      return value;
    }
    refuse(fmt::format("{} is '{}'; it is a whole number from {} to {}", flag, text, least, most));
    return otherwise;
  }

  // nccl-tests' K, M and G are powers of 1024.
  int64_t size(const char* flag, std::string text, int64_t otherwise) {
    if (text.empty()) return otherwise;
    const std::string typed = text;
    if (std::string("KMG").find(text.back()) != std::string::npos) text += "iB";
    if (std::isdigit(static_cast<unsigned char>(text.back())) != 0) text += "B";
    const auto value = base::parse_bytes(text);
    if (value.ok() && *value <= int64_t{1} << 40) return *value;
    refuse(fmt::format("{} is '{}'; write a size such as 8, 64KiB, 32M or 64MiB, 1 TiB at most",
                       flag, typed));
    return otherwise;
  }

  // The index of `word` among `names`, or of what it is called elsewhere.
  std::optional<size_t> choice(const char* flag, const std::string& word, const Names& names) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found != names.end()) return found - names.begin();
    const auto meant = base::nearest(word, names);
    refuse(fmt::format("{} '{}' is none of {}{}", flag, word, fmt::join(names, ", "),
                       meant ? fmt::format("; did you mean {}?", *meant) : ""));
    return std::nullopt;
  }

 private:
  std::vector<std::string> mistakes_;
};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

template <class T, int kCount>
Names names_of() {
  Names names;
  for (int i = 0; i < kCount; ++i) names.push_back(name_of(static_cast<T>(i)));
  return names;
}

template <class T>
std::vector<T> choices(Reader& reader, const char* flag, const std::string& text,
                       const Names& names) {
  std::vector<T> chosen;
  for (const std::string& word : split_words(text)) {
    if (const auto index = reader.choice(flag, word, names)) {
      chosen.push_back(static_cast<T>(*index));
    }
  }
  return chosen;
}

std::vector<Routine> read_routines(Reader& reader, const std::vector<std::string>& words) {
  Names names;
  for (const auto name : names_of<Routine, schedule::kNumRoutines>()) {
    if (name != name_of(Routine::kTreeReduce)) names.push_back(name);
  }
  if (words.empty()) {
    reader.refuse(fmt::format("no routine was named; routines: {}", fmt::join(names, ", ")));
  }
  std::vector<Routine> routines;
  for (const std::string& word : words) {
    if (const auto index = reader.choice("the routine", word, names)) {
      routines.push_back(*schedule::routine_named(names[*index]));
    }
  }
  return routines;
}

std::vector<DType> read_dtypes(Reader& reader, const std::string& text) {
  const Names names = names_of<DType, base::kNumDTypes>();
  std::string list = text == "all" ? fmt::format("{}", fmt::join(names, ",")) : text;
  std::vector<std::string> words = split_words(list);
  const std::map<std::string, std::string> elsewhere = {
      {"float", "float32"}, {"double", "float64"},         {"half", "float16"},
      {"bf16", "bfloat16"}, {"fp8_e4m3", "float8_e4m3fn"}, {"fp8_e5m2", "float8_e5m2"}};
  for (std::string& word : words) {
    if (const auto found = elsewhere.find(word); found != elsewhere.end()) word = found->second;
  }
  return choices<DType>(reader, "-d", fmt::format("{}", fmt::join(words, ",")), names);
}

std::vector<ReduceOp> read_ops(Reader& reader, const std::string& text) {
  Names names = names_of<ReduceOp, schedule::kNumReduceOps>();
  std::erase(names, name_of(ReduceOp::kPremulSum));  // its factors are the caller's
  return choices<ReduceOp>(reader, "-o",
                           text == "all" ? fmt::format("{}", fmt::join(names, ",")) : text, names);
}

// Where all was asked for, the pairs that do not exist are passed over.
void refuse_what_no_element_does(Reader& reader, const BenchWish& wish, bool asked_for_all) {
  for (const ReduceOp op : wish.ops) {
    for (const DType dtype : wish.dtypes) {
      const Status status = shm::check_op(op, dtype);
      if (!status.ok() && !asked_for_all) reader.refuse("-o and -d: " + status.message());
    }
  }
}

std::vector<int> read_roots(Reader& reader, const std::string& text, int ranks) {
  std::vector<int> roots;
  if (text != "all") return {static_cast<int>(reader.number("-r", text, 0, 0, ranks - 1))};
  for (int root = 0; root < ranks; ++root) roots.push_back(root);
  return roots;
}

}  // namespace

std::vector<BenchCase> BenchWish::cases(Routine routine) const {
  std::vector<BenchCase> all;
  const bool reducing = reduces(routine);
  const bool rooted = has_root(routine) || routine == Routine::kSend;
  const auto sizes_in_turn =
      routine == Routine::kBarrier ? std::vector<int64_t>{0} : report::sizes_of(sizes);
  for (const int64_t size : sizes_in_turn) {
    for (const DType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        if (reducing && !shm::check_op(op, dtype).ok()) continue;
        for (const int root : roots) {
          BenchCase one{
              .routine = routine, .bytes = size, .dtype = dtype, .root = root, .ranks = ranks};
          if (reducing) one.op = op;
          all.push_back(one);
          if (!rooted) break;
        }
        if (!reducing) break;
      }
      if (routine == Routine::kBarrier) break;
    }
  }
  return all;
}

void BenchOptions::add_to(Verb verb) {
  verb.add_option("routine", &routines_, "all_reduce, broadcast, ..., one or more")
      .type_name("ROUTINE");
  verb.add_option("--ranks", &ranks_, "how many take part; default: one per usable core")
      .type_name("N");
  verb.add_option("--bytes", &bytes_, "one size: 64MiB; all shares together where there are any")
      .type_name("SIZE");
  add_nccl_letters(verb);
  verb.add_option("--placement", &placement_, "heap or private; default: both").type_name("PLACE");
  verb.add_option("--engine", &engine_, "shm or gloo").type_name("NAME").show_default();
  verb.add_option("--peer", &peers_,
                  "libraries to compare with: openmpi,mpich,gloo,pytorch; runs are interleaved")
      .type_name("NAMES");
  verb.add_option("--pairs", &pairs_, "rounds of turns; default: 30").type_name("N");
  verb.add_option("--python", &python, "that has torch, for the peer pytorch")
      .type_name("PROGRAM")
      .show_default();
  verb.add_flag("--hot", &hot_, "one buffer, never written between calls");
  verb.add_flag("--cold", &cold_,
                "cycle through buffers of twice the size of the last-level cache");
  verb.add_flag("--fit", &fit,
                "fits costs that collectives are chosen and predicted by, and stores them");
  verb.add_flag("--json", &as_json, "one object per line, for programs");
  verb.add_option("--corrupt", &corrupt_).group("");  // proves that a wrong result is noticed
  add_refused(verb);
}

void BenchOptions::add_nccl_letters(Verb verb) {
  verb.add_option("-b,--minbytes", &first_, "the first size; default: 32M").type_name("SIZE");
  verb.add_option("-e,--maxbytes", &last_, "the last size; default: the first").type_name("SIZE");
  verb.add_option("-i,--stepbytes", &step_, "added from size to size").type_name("SIZE");
  verb.add_option("-f,--stepfactor", &factor_, "multiplied from size to size; default: 2")
      .type_name("N");
  verb.add_option("-n,--iters", &calls_, "timed calls per round; default: by their time")
      .type_name("N");
  verb.add_option("-w,--warmup_iters", &warmup_, "calls before them; default: a fifth")
      .type_name("N");
  verb.add_option("-c,--check", &check_, "0: results are not compared").type_name("N");
  verb.add_option("-o,--op", &ops_, "sum, avg, min, max, prod, ..., or all")
      .type_name("OPS")
      .show_default();
  verb.add_option("-d,--datatype", &dtypes_, "float32, bfloat16, ..., or all")
      .type_name("TYPES")
      .show_default();
  verb.add_option("-r,--root", &roots_, "a rank, or all; of send: who sends")
      .type_name("RANK")
      .show_default();
  verb.add_option("-a,--average", &average_,
                  "a call's time: 0 rank 0's, 1 mean, 2 shortest, 3 longest (default)")
      .type_name("N");
  verb.add_option("-T,--timeout", &timeout_, "seconds until a call has failed; default: 300")
      .type_name("SECONDS");
}

void BenchOptions::add_refused(Verb verb) {
  const char* by_ranks = "hanji runs one rank per process; use --ranks";
  const char* gpu = "it is about GPUs, and these are tensors of the CPU";
  refused_ = {{"-t,--nthreads", "", "1", by_ranks},
              {"-g,--ngpus", "", "1", by_ranks},
              {"-m,--agg_iters", "", "1", "calls are timed one by one"},
              {"-p,--parallel_init", "", "0", by_ranks},
              {"-z,--blocking", "", "1", "every timed call is waited for"},
              {"-G,--cudagraph", "", "0", gpu},
              {"-R,--local_register", "", "0", "use --placement heap or private"},
              {"-C,--report_cputime", "", "0", "a waiting rank spins, so both times are one"}};
  for (Refused& one : refused_) {
    verb.add_option(one.flag, &one.value).implicit_value("set").group("");
  }
}

Result<int> BenchOptions::ranks_to_fit() const {
  Reader reader;
  const auto ranks =
      static_cast<int>(reader.number("--ranks", ranks_, 0, 2, base::kMaxRanksPerHost));
  if (!routines_.empty()) reader.refuse("--fit times all routines; name none");
  if (reader.mistakes().empty()) return ranks;
  return base::invalid_argument(fmt::format("{}", fmt::join(reader.mistakes(), "\n")));
}

Result<BenchWish> BenchOptions::wish(int usable_cores) const {
  Reader reader;
  BenchWish wish;
  wish.routines = read_routines(reader, routines_);
  wish.ranks = static_cast<int>(reader.number("--ranks", ranks_, usable_cores, 1, 64));
  const bool sends =
      std::find(wish.routines.begin(), wish.routines.end(), Routine::kSend) != wish.routines.end();
  if (sends && wish.ranks < 2) reader.refuse("send needs two ranks; use --ranks 2");
  if (!bytes_.empty() && !(first_.empty() && last_.empty() && step_.empty() && factor_.empty())) {
    reader.refuse("--bytes is one size, and -b, -e, -i and -f are a range; give one of the two");
  }
  wish.sizes.first = reader.size("--bytes", bytes_, reader.size("-b", first_, int64_t{32} << 20));
  wish.sizes.last = bytes_.empty() ? reader.size("-e", last_, wish.sizes.first) : wish.sizes.first;
  wish.sizes.step = reader.size("-i", step_, 0);
  wish.sizes.factor = reader.number("-f", factor_, 2, 2, 1 << 20);
  if (wish.sizes.last < wish.sizes.first) reader.refuse("-e is smaller than -b; swap them");
  if (!step_.empty() && wish.sizes.step == 0) reader.refuse("-i is 0; give the bytes to add");
  if (!step_.empty() && !factor_.empty()) reader.refuse("-i adds and -f multiplies; give one");
  wish.dtypes = read_dtypes(reader, dtypes_);
  wish.ops = read_ops(reader, ops_);
  refuse_what_no_element_does(reader, wish, ops_ == "all" || dtypes_ == "all");
  wish.roots = read_roots(reader, roots_, wish.ranks);
  reader.choice("--engine", engine_, {"shm", "gloo"});
  wish.engine = engine_;
  const std::string places = !placement_.empty() ? placement_
                             : engine_ == "gloo" ? "private"
                                                 : "heap,private";
  wish.placements = choices<BenchPlacement>(reader, "--placement", places, {"heap", "private"});
  const Names peers = {"openmpi", "mpich", "gloo", "pytorch"};
  for (const std::string& peer : split_words(peers_)) {
    if (reader.choice("--peer", peer, peers)) wish.peers.push_back(peer);
  }
  wish.pairs = static_cast<int>(reader.number("--pairs", pairs_, wish.pairs, 1, 10'000));
  wish.calls = reader.number("-n", calls_, 0, 1, 1'000'000);
  wish.warmup = reader.number("-w", warmup_, -1, 0, 1'000'000);
  wish.check = reader.number("-c", check_, 1, 0, 1'000'000) != 0;
  wish.average = static_cast<report::Average>(reader.number("-a", average_, 3, 0, 3));
  wish.timeout = std::chrono::seconds(reader.number("-T", timeout_, 300, 1, 86'400));
  wish.corrupt = static_cast<int>(reader.number("--corrupt", corrupt_, -1, 0, wish.ranks - 1));
  if (hot_ && cold_) reader.refuse("--hot and --cold contradict each other; give one");
  if (hot_) wish.caches = BenchWish::Caches::kHot;
  if (cold_) wish.caches = BenchWish::Caches::kCold;
  for (const Refused& one : refused_) {
    if (!one.value.empty() && one.value != one.harmless) {
      reader.refuse(fmt::format("{} is not offered: {}", one.flag, one.why));
    }
  }
  if (reader.mistakes().empty()) return wish;
  return base::invalid_argument(fmt::format("{}", fmt::join(reader.mistakes(), "\nhanji: ")));
}

}  // namespace hanji::cli
