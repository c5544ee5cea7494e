#include "hanji/comm/internal/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

using schedule::Routine;

namespace {

void set_counts(Request& request, int64_t per_element, int64_t count, std::vector<int64_t> counts) {
  request.count = count * per_element;
  if (counts.empty()) return;
  for (int64_t& each : counts) each *= per_element;
  request.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  request.counts = std::move(counts);
}

/// What a rank has of a buffer that is divided among all, what lies before it, and the whole.
struct Shared {
  int64_t mine;
  int64_t before;
  int64_t all;
};

Shared share_of(const Request& request, int rank, int size) {
  const int64_t count = request.count;
  if (request.counts.empty()) return {count, count * rank, count * size};
  return {request.counts[rank], sum_before(request.counts, rank), count};
}

Extents exchanged(const Request& request, int rank, int size) {
  const std::vector<int64_t>& counts = request.counts;
  if (counts.empty()) return {.input = request.count * size, .output = request.count * size};
  Extents extents{.input = 0, .output = 0};
  for (int peer = 0; peer < size; ++peer) {
    extents.input += counts[rank * size + peer];
    extents.output += counts[peer * size + rank];
  }
  return extents;
}

}  // namespace

void check_root(const Request& request, const Group& group) {
  if (request.root >= 0 && request.root < group.size()) return;
  throw Error(base::invalid_argument(
      fmt::format("{}: root {} is not a rank of group {} of {}; ranks start at 0",
                  schedule::name_of(request.routine), request.root, group.name(), group.size())));
}

void check_counts(const std::vector<int64_t>& counts, int64_t expected, const Request& request) {
  const std::string_view routine = schedule::name_of(request.routine);
  if (static_cast<int64_t>(counts.size()) != expected) {
    throw Error(base::invalid_argument(
        fmt::format("{}: {} counts are given and {} needed{}", routine, counts.size(), expected,
                    request.routine == schedule::Routine::kAllToAll ? ", one for each pair of ranks"
                                                                    : ", one for each rank")));
  }
  constexpr int64_t kMaxCount = int64_t{1} << 48;
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > kMaxCount - sum) {
      throw Error(base::invalid_argument(
          fmt::format("{}: a count of {} elements is out of range", routine, count)));
    }
    sum += count;
  }
}

int64_t sum_before(const std::vector<int64_t>& counts, int64_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

void set_shares(Request& request, c10::ScalarType type, int64_t count,
                std::vector<int64_t> counts) {
  const Moved moved = moved_as(type);
  request.dtype = moved.dtype;
  set_counts(request, moved.per_element, count, std::move(counts));
}

void set_reduced(Request& request, c10::ScalarType type, int64_t count,
                 std::vector<int64_t> counts) {
  request.dtype = reduced_dtype(type, request);
  set_counts(request, 1, count, std::move(counts));
}

Extents extents_of(const Request& request, int rank, int size) {
  const bool is_root = rank == request.root;
  const int64_t count = request.count;
  const auto at_root = [is_root](int64_t elements) { return is_root ? elements : Extents::kNone; };
  const bool shares = request.routine != Routine::kAllToAll;
  const Shared shared = shares ? share_of(request, rank, size) : Shared{};
  switch (request.routine) {
    case Routine::kAllReduce: return {.input = count, .output = count};
    case Routine::kBroadcast: return {.input = at_root(count), .output = count};
    case Routine::kReduce: return {.input = count, .output = at_root(count)};
    case Routine::kAllGather:
      return {.input = shared.mine, .output = shared.all, .output_offset = shared.before};
    case Routine::kGather:
      return {.input = shared.mine, .output = at_root(shared.all), .output_offset = shared.before};
    case Routine::kReduceScatter:
      return {.input = shared.all, .output = shared.mine, .input_offset = shared.before};
    case Routine::kScatter:
      return {.input = at_root(shared.all), .output = shared.mine, .input_offset = shared.before};
    case Routine::kAllToAll: return exchanged(request, rank, size);
    default: return {};
  }
}

void check_extents(const Request& request, const Group& group) {
  const Extents extents = extents_of(request, group.rank(), group.size());
  const at::Tensor& typed = extents.input == Extents::kNone ? request.output : request.input;
  // Elements wider than any that the engines know move as several.
  const auto several = static_cast<int64_t>(typed.element_size() / size_of(request.dtype));
  if (extents.input != Extents::kNone) {
    check_count(request.input, "input", extents.input / several, request);
  }
  if (extents.output != Extents::kNone) {
    check_count(request.output, "output", extents.output / several, request);
  }
  if (extents.input == Extents::kNone || extents.output == Extents::kNone) return;
  check_pair(request, extents.input_offset / several, extents.output_offset / several);
}

}  // namespace hanji::comm
