#include "hanji/train/run_log.h"

#include <fmt/format.h>

#include "hanji/base/units.h"

namespace hanji::train {

Result<RunLog> RunLog::open(const std::filesystem::path& out, const plan::Plan& plan,
                            int64_t first_step, Output output) {
  const std::filesystem::path lines = out / "run.jsonl";
  HANJI_ASSIGN_OR_RETURN(History history, rewind_log(lines, first_step));
  HANJI_ASSIGN_OR_RETURN(auto jsonl, trace::JsonlWriter::open(lines));
  HANJI_ASSIGN_OR_RETURN(auto board, trace::TensorBoardWriter::open(out / "tensorboard"));
  RunLog log(plan, std::move(history), std::move(output), std::move(jsonl), std::move(board));
  HANJI_RETURN_IF_ERROR(log.begin());
  return log;
}

RunLog::RunLog(const plan::Plan& plan, History history, Output output, trace::JsonlWriter jsonl,
               trace::TensorBoardWriter board)
    : steps_(plan.config.train.steps),
      ranks_(plan.ranks),
      first_step_(history.steps),
      history_(std::move(history)),
      log_every_(plan.config.train.log_every),
      flops_per_token_(plan.model.flops_per_token()),
      output_(std::move(output)),
      jsonl_(std::move(jsonl)),
      board_(std::move(board)) {}

Status RunLog::begin() {
  if (!history_.found) return {};
  HANJI_RETURN_IF_ERROR(board_.restart(first_step_ + 1));
  trace::JsonLine line;
  line.add("step", first_step_);
  line.add("resumed", true);
  line.add("ranks", ranks_);
  return jsonl_.write(line.take());
}

Status RunLog::step(const StepRecord& record) {
  const double tokens_per_second = static_cast<double>(record.num_tokens) / record.step_seconds;
  trace::JsonLine line;
  line.add("step", record.step);
  line.add("loss", record.loss);
  line.add("step_seconds", record.step_seconds);
  line.add("tokens_per_second", tokens_per_second);
  line.add("learning_rate", record.learning_rate);
  line.add("gradient_norm", record.gradient_norm);
  line.add("data_seconds", record.data_seconds);
  line.add("exposed_communication_seconds", record.exposed_communication_seconds);
  line.add("memory_bytes", record.memory_bytes);
  line.add("ranks", ranks_);
  HANJI_RETURN_IF_ERROR(jsonl_.write(line.take()));

  HANJI_RETURN_IF_ERROR(board_.scalar("train/loss", record.step, record.loss));
  HANJI_RETURN_IF_ERROR(board_.scalar("train/learning_rate", record.step, record.learning_rate));
  HANJI_RETURN_IF_ERROR(board_.scalar("train/gradient_norm", record.step, record.gradient_norm));
  HANJI_RETURN_IF_ERROR(board_.scalar("speed/tokens_per_second", record.step, tokens_per_second));

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
  return {};
}

std::string RunLog::progress_line(const StepRecord& record) const {
  const double tokens_per_second = static_cast<double>(record.num_tokens) / record.step_seconds;
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  {} tokens/s  {:.1f} GF/s  {}  {:.1f}% communication  ETA {}",
      record.step, std::to_string(steps_).size(), steps_, record.loss,
      base::format_count(static_cast<int64_t>(tokens_per_second)),
      tokens_per_second * flops_per_token_ / 1e9, base::format_bytes(record.memory_bytes),
      100 * record.exposed_communication_seconds / record.step_seconds,
      base::format_seconds(static_cast<double>(steps_ - record.step) * smoothed_seconds_));
}

Status RunLog::evaluation(int64_t step, double validation_loss) {
  trace::JsonLine line;
  line.add("step", step);
  line.add("validation_loss", validation_loss);
  HANJI_RETURN_IF_ERROR(jsonl_.write(line.take()));
  HANJI_RETURN_IF_ERROR(board_.scalar("validation/loss", step, validation_loss));
  output_.write(fmt::format("{}step {}  validation loss {:.4f} nats\n",
                            output_.overwrites ? "\r\033[K" : "", step, validation_loss));
  return {};
}

Status RunLog::warning(int64_t step, std::string_view what) {
  trace::JsonLine line;
  line.add("step", step);
  line.add("warning", what);
  HANJI_RETURN_IF_ERROR(jsonl_.write(line.take()));
  output_.write(
      fmt::format("{}step {}  warning: {}\n", output_.overwrites ? "\r\033[K" : "", step, what));
  return {};
}

Status RunLog::flush() { return board_.flush(); }

}  // namespace hanji::train
