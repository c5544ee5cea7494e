#include "hanji/report/training_log.h"

#include <fmt/format.h>

#include <optional>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

using base::Json;

std::optional<double> logged_number(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

int64_t logged_integer(const Json& line, const char* key, int64_t otherwise) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

void add_logged_step(const Json& line, int64_t step, TrainingLog& log) {
  if (logged_integer(line, "valid_targets", 1) == 0) {
    ++log.without_targets;
  } else if (const auto loss = logged_number(line, "loss")) {
    log.train_losses.push_back({step, *loss});
  } else {
    ++log.not_finite;
  }
}

void add_evaluation(const Json& line, int64_t step, TrainingLog& log) {
  constexpr std::string_view kPrefix = "validation_";
  for (const auto& [key, value] : line.items()) {
    if (!key.starts_with(kPrefix) || !value.is_number()) continue;
    if (key == "validation_loss") {
      log.validation_losses.push_back({step, value.get<double>()});
    } else {
      log.metric_name = key.substr(kPrefix.size());
      log.metrics.push_back({step, value.get<double>()});
    }
  }
}

Status add_logged_line(std::string_view text, TrainingLog& log) {
  HANJI_ASSIGN_OR_RETURN(const Json line, base::parse_json(text, 16, size_t{1} << 20));
  const int64_t step = line.is_object() ? logged_integer(line, "step", -1) : -1;
  if (step < 0) return base::corrupt("the line has no step");
  if (line.contains("resumed")) {
    log.resumptions.push_back({step, static_cast<int>(logged_integer(line, "ranks", 0))});
  } else if (line.contains("warning") && line["warning"].is_string()) {
    log.warnings.push_back({step, line["warning"].get<std::string>()});
  } else if (line.contains("validation_loss")) {
    add_evaluation(line, step, log);
  } else if (line.contains("loss")) {
    add_logged_step(line, step, log);
  }
  return {};
}

}  // namespace

Result<TrainingLog> read_training_log(const std::filesystem::path& path) {
  TrainingLog log;
  if (!std::filesystem::exists(path)) return log;
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0
  int number = 0;
  for (const std::string_view line : base::split(std::string_view(text).substr(0, whole), '\n')) {
    ++number;
    if (line.empty()) continue;
    const Status status = add_logged_line(line, log);
    if (!status.ok()) return status.at(fmt::format("{}:{}", path.string(), number));
  }
  return log;
}

}  // namespace hanji::report
