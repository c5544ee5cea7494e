#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/c10d/internal/group_backend.h"

namespace hanji::comm::c10d {
namespace {

using std::chrono::milliseconds;

bool came(::c10d::Store& store, const std::string& key, const base::Deadline& deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline.remaining());
  try {
    store.wait({key}, std::max(left, milliseconds(1)));
    return true;
  } catch (const std::exception&) {  // each store has its own words for "not in time"
    return false;
  }
}

}  // namespace

c10::intrusive_ptr<::c10d::Backend> GroupBackend::meet(
    const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
    const c10::intrusive_ptr<Options>& options) const {
  if (!hooks_.meet) {
    throw Error(base::unsupported(fmt::format(
        "group {} cannot be split or merged, for it was made without a way to meet others; use "
        "new_group",
        group().name())));
  }
  const bool named = options && !options->group_name.empty();
  return hooks_.meet(store, rank, size, options ? options->timeout : options_->timeout,
                     named ? options->group_name : fmt::format("part of {}", group().name()));
}

// Over a store of the part's own, which c10d prefixes; ranks that are in no part do not wait.
c10::intrusive_ptr<::c10d::Backend> GroupBackend::split(
    const c10::intrusive_ptr<::c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  return meet(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
              options);
}

c10::intrusive_ptr<::c10d::Backend> GroupBackend::merge(
    const c10::intrusive_ptr<::c10d::Store>& store, const c10::intrusive_ptr<Options>& options,
    const int& rank, const int& size) {
  return meet(store, rank, size, options);
}

// Over the store, and not as a collective: ranks that hang elsewhere do not end the group.
void GroupBackend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool all_ranks) {
  if (!hooks_.store) {
    throw Error(base::unsupported(
        fmt::format("monitoredBarrier: group {} was made without a store", group().name())));
  }
  const auto timeout =
      options.timeout == ::c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const std::string prefix = fmt::format("hanji/monitored/{}/", monitored_barriers_++);
  rank_ == 0 ? await_others(prefix, timeout, all_ranks) : await_rank_zero(prefix, timeout);
}

void GroupBackend::await_others(const std::string& prefix, milliseconds timeout, bool all_ranks) {
  const auto deadline = base::Deadline::after(timeout);
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (all_ranks || missing.empty()); ++rank) {
    if (!came(*hooks_.store, fmt::format("{}{}", prefix, rank), deadline)) missing.push_back(rank);
  }
  const std::string verdict =
      missing.empty() ? ""
                      : fmt::format("Rank{} {} failed to pass monitoredBarrier in {} ms",
                                    missing.size() == 1 && !all_ranks ? "" : "s",
                                    fmt::join(missing, ", "), timeout.count());
  hooks_.store->set(prefix + "go", std::vector<uint8_t>(verdict.begin(), verdict.end()));
  if (!missing.empty()) throw Error(base::timeout(verdict));
}

void GroupBackend::await_rank_zero(const std::string& prefix, milliseconds timeout) {
  hooks_.store->set(fmt::format("{}{}", prefix, rank_), std::vector<uint8_t>{1});
  const auto deadline = base::Deadline::after(timeout);
  std::string verdict = fmt::format("rank 0 did not answer within {} ms", timeout.count());
  if (came(*hooks_.store, prefix + "go", deadline)) {
    const auto bytes = hooks_.store->get(prefix + "go");
    if (bytes.empty()) return;
    verdict.assign(bytes.begin(), bytes.end());
  }
  throw Error(base::timeout(
      fmt::format("Rank {} successfully reached monitoredBarrier, but received errors while "
                  "waiting for send/recv from rank 0: {}",
                  rank_, verdict)));
}

}  // namespace hanji::comm::c10d
