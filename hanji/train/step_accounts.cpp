#include "hanji/train/step_accounts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <numeric>

#include "hanji/base/file.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/host_values.h"

namespace hanji::train {
namespace {

std::optional<double> seconds_between(const comm::Stats& before, const comm::Stats& after,
                                      int64_t comm::CallTimes::*member) {
  if (!before.times || !after.times) return std::nullopt;
  return static_cast<double>((*after.times).*member - (*before.times).*member) * 1e-9;
}

/// The file of a rank as bytes; empty: it cannot be read.
at::Tensor bytes_of(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  const auto text = base::read_file(path, kMaxBytes);
  if (!text.ok()) return at::empty({0}, at::kByte);
  at::Tensor bytes = at::empty({static_cast<int64_t>(text->size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text->data(), text->size());
  return bytes;
}

std::string header_of(const plan::Plan& plan, int rank, int64_t first_step) {
  trace::JsonLine line;
  line.add("format", report::kAccountFormat);
  line.add("rank", rank);
  line.add("ranks", plan.ranks);
  line.add("first_step", first_step);
  line.add("threads", plan.threads);
  return line.take();
}

}  // namespace

StepAccounts::StepAccounts(const Job& job, const plan::Plan& plan, const std::filesystem::path& out,
                           int64_t first_step, std::function<void(const std::string&)> tell)
    : job_(job), cut_axis_(job.is_axial ? "axial" : "tp"), tell_(std::move(tell)) {
  const int rank = job.group.rank();
  Status status = base::make_directories(out / report::kAccountFolder);
  if (status.ok()) {
    auto writer = trace::JsonlWriter::open(out / report::account_file(rank));
    status = writer.status();
    if (writer.ok()) writer_.emplace(*std::move(writer));
  }
  if (status.ok()) {
    write(header_of(plan, rank, first_step));
  } else {
    give_up(status);
  }
}

void StepAccounts::begin() {
  if (!writer_) return;
  before_ = stats_of_axes();
  used_before_ = topology::own_use();
  if (const trace::Recorder* recorder = job_.group.recorder()) {
    // Past evaluation and checkpoints.
    ticket_ = recorder->for_each_since(ticket_, [](const trace::Event&) {});
  }
}

void StepAccounts::end(int64_t steps_done, const StepSeconds& seconds, int64_t memory_bytes) {
  if (!writer_) return;
  const topology::OwnUse used = topology::own_use();
  report::StepAccount account{.step = steps_done,
                              .seconds = seconds.step,
                              .data = seconds.data,
                              .cpu = used.cpu_seconds - used_before_.cpu_seconds,
                              .major_faults = used.major_faults - used_before_.major_faults,
                              .samples = seconds.reading.samples,
                              .reading = seconds.reading.seconds,
                              .fetching = seconds.reading.fetching,
                              .memory_bytes = memory_bytes,
                              .axes = axes_since_begin()};
  if (seconds.calls) {
    account.transfer = seconds.calls->transfer;
    account.exposed_transfer = seconds.calls->exposed_transfer;
    account.skew = seconds.calls->skew;
  }
  if (const trace::Recorder* recorder = job_.group.recorder()) {
    ticket_ = report::add_events(account, *recorder, ticket_);
  }
  if (kept_) {
    report::add(*kept_, account);
  } else {
    kept_ = std::move(account);
  }
  if (kept_->steps < steps_per_line_) return;
  flush();
  if (++lines_ % kLines == 0) steps_per_line_ *= 2;
}

void StepAccounts::flush() {
  if (kept_) write(to_json(*kept_));
  kept_.reset();
}

std::vector<StepAccounts::AxisStats> StepAccounts::stats_of_axes() const {
  std::vector<AxisStats> all;
  if (!job_.peers || job_.data.size() > 1) all.push_back({"data", job_.strategy->stats()});
  const std::array groups = {std::pair{"peers", &job_.peers},
                             std::pair{cut_axis_.c_str(), &job_.cut}, std::pair{"pp", &job_.stages},
                             std::pair{"cp", &job_.context}};
  for (const auto& [axis, group] : groups) {
    if (*group) all.push_back({axis, (*group)->stats()});
  }
  return all;
}

std::vector<report::AxisAccount> StepAccounts::axes_since_begin() const {
  std::vector<report::AxisAccount> axes;
  const std::vector<AxisStats> after = stats_of_axes();
  for (size_t i = 0; i < after.size(); ++i) {
    const comm::Stats &from = before_[i].stats, &to = after[i].stats;
    if (to.operations == from.operations) continue;
    axes.push_back({.axis = after[i].axis,
                    .calls = to.operations - from.operations,
                    .bytes = to.bytes - from.bytes,
                    .exposed_transfer = seconds_between(from, to, &comm::CallTimes::exposed_ns),
                    .skew = seconds_between(from, to, &comm::CallTimes::skew_ns)});
  }
  return axes;
}

void StepAccounts::write(const std::string& line) {
  if (!writer_) return;
  const Status status = writer_->write(line);
  if (!status.ok()) give_up(status);
}

void StepAccounts::give_up(const Status& status) {
  writer_.reset();
  tell_(fmt::format("{} is not written any more, training goes on: {}",
                    report::account_file(job_.group.rank()).string(), status.message()));
}

void gather_accounts(const comm::Group& group, const std::filesystem::path& out) {
  const int rank = group.rank();
  const at::Tensor own = bytes_of(out / report::account_file(rank));
  // What lies before the first rank already, on a file system that hosts share, is not sent.
  at::Tensor is_there = at::zeros({group.size()}, at::kLong);
  for (int r = 0; rank == 0 && r < group.size(); ++r) {
    is_there[r] = std::filesystem::exists(out / report::account_file(r)) ? 1 : 0;
  }
  comm::broadcast(is_there, 0, group, {.label = "steps that are here"}).wait();
  const bool sends = is_there[rank].item<int64_t>() == 0;
  at::Tensor sizes = at::empty({group.size()}, at::kLong);
  const at::Tensor mine = at::full({1}, sends ? own.numel() : 0, at::kLong);
  comm::all_gather_on_host(sizes, mine, group, {.label = "sizes of steps"});
  const std::vector<int64_t> counts(sizes.const_data_ptr<int64_t>(),
                                    sizes.const_data_ptr<int64_t>() + group.size());
  const int64_t all = std::reduce(counts.begin(), counts.end());
  if (all == 0) return;
  at::Tensor texts = at::empty({rank == 0 ? all : 0}, at::kByte);
  comm::gather(texts, sends ? own : own.narrow(0, 0, 0), counts, 0, group, {.label = "steps"})
      .wait();
  const auto* text = static_cast<const char*>(texts.const_data_ptr());
  for (int r = 0; rank == 0 && r < group.size(); text += counts[r], ++r) {
    if (counts[r] == 0) continue;
    (void)base::write_file_atomic(out / report::account_file(r),
                                  std::string_view(text, static_cast<size_t>(counts[r])));
  }
}

}  // namespace hanji::train
