#include "hanji/cost/named_algorithm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hanji/base/limits.h"
#include "hanji/base/text.h"
#include "hanji/schedule/catalogue.h"

namespace hanji::cost {
namespace {

using schedule::Routine;

constexpr int64_t kSomeElements = 1024;  // the order of a sum does not depend on how many there are

bool adds_up(Routine routine) {
  return routine == Routine::kAllReduce || routine == Routine::kReduce ||
         routine == Routine::kReduceScatter;
}

// A number of ranks for which the order is another one; 0: there is none.
int disordered_ranks(const schedule::Algorithm& algorithm, int ranks) {
  const int first = ranks > 0 ? ranks : 2;
  const int last = ranks > 0 ? ranks : base::kMaxRanksPerHost;
  for (int p = first; p <= last; ++p) {
    schedule::ListShape shape{0, 1, p % 2 == 0 ? 2 : 1, {}};
    if (algorithm.is_symmetric) shape.kept.rank = 0;  // what is promised is said of all
    if (!algorithm.make(p, kSomeElements, shape).keeps_order) return p;
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> algorithm_names(Routine routine, Medium medium) {
  std::vector<std::string_view> names;
  const auto messages = schedule::message_algorithms(routine);
  if (medium == Medium::kMemory) {
    if (!messages.empty() || routine == Routine::kSend) names = {"flat", "direct", "staged"};
    return names;
  }
  for (const auto& one : messages) names.push_back(one.name);
  return names;
}

Status check_named(const NamedUse& use) {
  const auto names = algorithm_names(use.routine, use.medium);
  const std::string where =
      use.medium == Medium::kMemory ? "in shared memory" : "between processes that send";
  if (std::ranges::find(names, use.algorithm) == names.end()) {
    const auto meant = base::nearest(use.algorithm, names);
    return base::invalid_argument(fmt::format(
        "{} has no algorithm '{}' {}; algorithms: {}{}", name_of(use.routine), use.algorithm, where,
        fmt::join(names, ", "), meant ? fmt::format("; did you mean {}?", *meant) : ""));
  }
  if (use.medium == Medium::kMemory || !use.needs_order || !adds_up(use.routine)) return {};
  for (const auto& one : schedule::message_algorithms(use.routine)) {
    if (one.name != use.algorithm) continue;
    const int disordered = disordered_ranks(one, use.ranks);
    if (disordered == 0) continue;
    return base::invalid_argument(fmt::format(
        "{} by {} adds in another order than one process would, with {} ranks for one; set "
        "train.bits = \"fast\", or name another algorithm",
        name_of(use.routine), use.algorithm, disordered));
  }
  return {};
}

}  // namespace hanji::cost
