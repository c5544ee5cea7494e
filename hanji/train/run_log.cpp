#include "hanji/train/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"

namespace hanji::train {

Result<RunLog> RunLog::open(const std::filesystem::path& out, const plan::Plan& plan,
                            int64_t first_step, Output output) {
  const std::filesystem::path lines = out / "run.jsonl";
  HANJI_ASSIGN_OR_RETURN(History history, rewind_log(lines, first_step));
  HANJI_ASSIGN_OR_RETURN(auto jsonl, trace::JsonlWriter::open(lines));
  HANJI_ASSIGN_OR_RETURN(auto board, trace::TensorBoardWriter::open(out / "tensorboard"));
  RunLog log(plan, std::move(history), std::move(output), out);
  log.jsonl_.writer.emplace(std::move(jsonl));
  log.board_.writer.emplace(std::move(board));
  HANJI_RETURN_IF_ERROR(log.begin());
  return log;
}

RunLog::RunLog(const plan::Plan& plan, History history, Output output, std::filesystem::path out)
    : steps_(plan.config.train.steps),
      ranks_(plan.ranks),
      first_step_(history.steps),
      history_(std::move(history)),
      log_every_(plan.config.train.log_every),
      flops_per_target_(plan::facts_of_whole(plan.config, plan.model).flops_per_target()),
      targets_(plan::targets_of(plan::family_of(plan.config.model).data)),
      output_(std::move(output)),
      out_(std::move(out)) {}

Status RunLog::begin() {
  if (!history_.found) return {};
  HANJI_RETURN_IF_ERROR(board_.writer->restart(first_step_ + 1));
  trace::JsonLine line;
  line.add("step", first_step_);
  line.add("resumed", true);
  line.add("ranks", ranks_);
  return jsonl_.writer->write(line.take());
}

void RunLog::step(const StepRecord& record) {
  const double targets_per_second = static_cast<double>(record.num_targets) / record.step_seconds;
  trace::JsonLine line;
  line.add("step", record.step);
  line.add("loss", record.loss);
  line.add("step_seconds", record.step_seconds);
  line.add(targets_ + "_per_second", targets_per_second);
  line.add("learning_rate", record.learning_rate);
  line.add("gradient_norm", record.gradient_norm);
  line.add("data_seconds", record.data_seconds);
  if (record.calls) {
    line.add("transfer_seconds", record.calls->transfer);
    line.add("exposed_transfer_seconds", record.calls->exposed_transfer);
    line.add("skew_seconds", record.calls->skew);
  }
  if (record.num_targets == 0) line.add("valid_targets", int64_t{0});
  line.add("memory_bytes", record.memory_bytes);
  line.add("ranks", ranks_);
  write_line(record.step, line.take());

  tend_board(record.step);
  scalar("train/learning_rate", record.step, record.learning_rate);
  if (record.num_targets > 0) {
    scalar("train/loss", record.step, record.loss);
    scalar("train/gradient_norm", record.step, record.gradient_norm);
  }
  scalar("speed/" + targets_ + "_per_second", record.step, targets_per_second);
  if (record.calls) {
    scalar("speed/exposed_transfer_seconds", record.step, record.calls->exposed_transfer);
    scalar("speed/skew_seconds", record.step, record.calls->skew);
  }

  const bool warm = record.step > first_step_ + 1;
  smoothed_seconds_ = warm && smoothed_seconds_ > 0
                          ? 0.9 * smoothed_seconds_ + 0.1 * record.step_seconds
                          : record.step_seconds;
  const bool last = record.step == steps_;
  if (record.step % log_every_ == 0 || record.step == first_step_ + 1 || last) {
    const bool stays = !output_.overwrites || last;
    output_.write((output_.overwrites ? "\r\033[K" : "") + progress_line(record) +
                  (stays ? "\n" : ""));
  }
}

namespace {

/// A part of the progress line, and how soon it is left out of one that is too long; 0: never.
struct Part {
  std::string text;
  int spare = 0;
};

std::string joined(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  return line;
}

/// The parts that fit beside each other.
std::string joined_within(std::vector<Part> parts, int columns) {
  std::string line = joined(parts);
  while (std::ssize(line) > columns) {
    const auto spare = std::ranges::max_element(parts, {}, &Part::spare);
    if (spare->spare == 0) break;
    parts.erase(spare);
    line = joined(parts);
  }
  return line;
}

std::string percent_of_step(double seconds, const StepRecord& record, std::string_view what) {
  return fmt::format("{:.1f}% {}", 100 * seconds / record.step_seconds, what);
}

}  // namespace

std::string RunLog::progress_line(const StepRecord& record) const {
  const double targets_per_second = static_cast<double>(record.num_targets) / record.step_seconds;
  std::vector<Part> parts = {
      {fmt::format("step {:>{}}/{}", record.step, std::to_string(steps_).size(), steps_)},
      {record.num_targets > 0 ? fmt::format("loss {:.4f}", record.loss) : "no valid target"},
      {fmt::format("{} {}/s", base::format_count(static_cast<int64_t>(targets_per_second)),
                   targets_)},
      {fmt::format("{:.1f} GF/s", targets_per_second * flops_per_target_ / 1e9), 3},
      {base::format_bytes(record.memory_bytes), 4}};
  if (record.calls) {  // an engine may not tell
    parts.push_back({percent_of_step(record.calls->exposed_transfer, record, "transfer"), 2});
    parts.push_back({percent_of_step(record.calls->skew, record, "skew"), 1});
  }
  parts.push_back({"ETA " + base::format_seconds(static_cast<double>(steps_ - record.step) *
                                                 smoothed_seconds_)});
  return joined_within(std::move(parts), output_.columns);
}

void RunLog::evaluation(int64_t step, double validation_loss, const Metric& metric) {
  trace::JsonLine line;
  line.add("step", step);
  line.add("validation_loss", validation_loss);
  std::string text = fmt::format("{}step {}  validation loss {:.4f} nats",
                                 output_.overwrites ? "\r\033[K" : "", step, validation_loss);
  scalar("validation/loss", step, validation_loss);
  if (!metric.name.empty()) {
    line.add("validation_" + metric.name, metric.value);
    scalar("validation/" + metric.name, step, metric.value);
    text += fmt::format("  {} {:.4f}", metric.name, metric.value);
  }
  write_line(step, line.take());
  output_.write(text + "\n");
}

void RunLog::warning(int64_t step, std::string_view what) {
  trace::JsonLine line;
  line.add("step", step);
  line.add("warning", what);
  write_line(step, line.take());
  print_warning(step, what);
}

void RunLog::print_warning(int64_t step, std::string_view what) const {
  output_.write(
      fmt::format("{}step {}  warning: {}\n", output_.overwrites ? "\r\033[K" : "", step, what));
}

template <class Writer>
void RunLog::apply(const Status& status, int64_t step, Place<Writer>& place) {
  if (status.ok()) return;
  place.writer.reset();
  print_warning(step, fmt::format("{} is not written any more, training goes on: {}", place.name,
                                  status.message()));
}

void RunLog::write_line(int64_t step, std::string_view line) {
  if (jsonl_.writer) apply(jsonl_.writer->write(line), step, jsonl_);
}

void RunLog::scalar(std::string_view tag, int64_t step, double value) {
  if (board_.writer) apply(board_.writer->scalar(tag, step, value), step, board_);
}

void RunLog::tend_board(int64_t step) {
  std::error_code unknown;
  if (!board_.writer || std::filesystem::exists(board_.writer->path(), unknown)) return;
  auto again = trace::TensorBoardWriter::open(out_ / board_.name);
  if (!again.ok()) return apply(again.status(), step, board_);
  board_.writer.emplace(*std::move(again));
  print_warning(step, "the tensorboard folder was deleted; its curves begin again here");
}

void RunLog::flush() {
  if (board_.writer) apply(board_.writer->flush(), steps_, board_);
}

}  // namespace hanji::train
