#include "hanji/comm/internal/call_batch.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "hanji/base/random.h"
#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

constexpr int64_t kPackedBytes = 4096;  // a call costs more than two copies of so much
constexpr int64_t kFusedBytes = int64_t{64} << 10;

bool is_small_sum(const Request& request) {
  return request.routine == schedule::Routine::kAllReduce && !request.steps &&
         static_cast<int64_t>(request.input.nbytes()) <= kPackedBytes;
}

/// Sums whose elements may lie in one buffer: each has the bits that it has alone, because the order
/// of a sum depends on the ranks only.
bool fit_together(const Request& a, const Request& b) {
  return a.op == b.op && a.dtype == b.dtype && a.factor == b.factor && a.deadline == b.deadline;
}

/// Ranks that fused other calls must not go on: this tells them apart.
uint64_t tag_of(const std::vector<const Request*>& parts) {
  uint64_t tag = parts.size();
  for (const Request* part : parts) {
    tag = base::mix(base::mix(tag, static_cast<uint64_t>(part->count)), part->tag);
  }
  return tag;
}

}  // namespace

void CallBatch::submit(const std::shared_ptr<GroupState>& group) {
  std::vector<Work> works;
  for (size_t begin = 0; begin < calls_.size();) {
    const size_t end = end_of_run(*group, begin);
    try {
      if (end - begin > 1) {
        works.push_back(submit_fused(group, begin, end));
      } else {
        auto& [over, request, ends] = calls_[begin];
        const Submitted submitted = over->submit(std::move(request));
        works.emplace_back(over, submitted.sequence, submitted.ticket).name_ends(ends);
      }
    } catch (const Error& error) {
      // Its peers have begun the batch, and cannot be told that this rank left it in the middle.
      if (begin != 0) group->fail(Status(error.code(), error.what()));
      throw;
    }
    begin = end;
  }
  calls_.clear();
  works_ = std::move(works);
}

const std::vector<Work>& CallBatch::works() const {
  if (works_) return *works_;
  const std::filesystem::path file = opened_at_.file_name();
  throw Error(base::invalid_argument(
      fmt::format("the call belongs to the batch opened at {}:{}, which is not submitted; wait for "
                  "the batch's Work, after submit()",
                  file.filename().string(), opened_at_.line())));
}

// Small sums of the group in a row, of which none uses what another changes.
size_t CallBatch::end_of_run(const GroupState& group, size_t begin) const {
  int64_t bytes = 0;
  size_t end = begin;
  for (; end < calls_.size(); ++end) {
    const auto& [over, request, ends] = calls_[end];
    const bool fits = over.get() == &group && group.engine().shares_memory() &&
                      is_small_sum(request) && fit_together(calls_[begin].request, request);
    if (!fits) break;
    bytes += static_cast<int64_t>(request.input.nbytes());
    if (bytes > kFusedBytes) break;
    const bool depends =
        std::any_of(calls_.begin() + static_cast<int64_t>(begin),
                    calls_.begin() + static_cast<int64_t>(end), [&](const Call& earlier) {
                      return overlap(earlier.request.output, request.input) ||
                             overlap(earlier.request.output, request.output) ||
                             overlap(earlier.request.input, request.output);
                    });
    if (depends) break;
  }
  return std::max(end, begin + 1);
}

Work CallBatch::submit_fused(const std::shared_ptr<GroupState>& group, size_t begin, size_t end) {
  const at::NoGradGuard no_grad;
  std::vector<const Request*> requests;
  int64_t count = 0;
  for (size_t i = begin; i < end; ++i) {
    requests.push_back(&calls_[i].request);
    count += requests.back()->count;
  }
  const Request& first = *requests.front();
  const at::Tensor staging = group->heap().empty({count}, to_scalar_type(first.dtype), "staging");
  std::vector<Scattered> parts;
  int64_t at = 0;
  for (const Request* request : requests) {
    at::Tensor part = staging.narrow(0, at, request->count).view(request->output.sizes());
    part.copy_(request->input.view(request->output.sizes()));
    parts.push_back({part, request->output});
    at += request->count;
  }
  Request fused = first;
  fused.input = fused.output = staging;
  fused.count = count;
  fused.tag = tag_of(requests);
  fused.label = fmt::format("{} calls as one", requests.size());
  fused.call_site = opened_at_;
  const Submitted submitted = group->submit(std::move(fused), std::move(parts));
  return {group, submitted.sequence, submitted.ticket};
}

}  // namespace hanji::comm
