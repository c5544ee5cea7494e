#include "hanji/train/step_accounts.h"

#include <fmt/format.h>

#include <array>

#include "hanji/base/file.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::train {
namespace {

std::optional<double> seconds_between(const comm::Stats& before, const comm::Stats& after,
                                      int64_t comm::CallTimes::*member) {
  if (!before.times || !after.times) return std::nullopt;
  return static_cast<double>((*after.times).*member - (*before.times).*member) * 1e-9;
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
  cpu_before_ = topology::own_cpu_seconds();
  if (const trace::Recorder* recorder = job_.group.recorder()) {
    // Past evaluation and checkpoints.
    ticket_ = recorder->for_each_since(ticket_, [](const trace::Event&) {});
  }
}

void StepAccounts::end(int64_t steps_done, const StepSeconds& seconds, int64_t memory_bytes) {
  if (!writer_) return;
  report::StepAccount account{.step = steps_done,
                              .seconds = seconds.step,
                              .data = seconds.data,
                              .cpu = topology::own_cpu_seconds() - cpu_before_,
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

}  // namespace hanji::train
