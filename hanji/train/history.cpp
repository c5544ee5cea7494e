#include "hanji/train/history.h"

#include <fmt/format.h>

#include "hanji/base/file.h"
#include "hanji/base/json.h"

namespace hanji::train {
namespace {

using base::Json;

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

int64_t integer(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

std::optional<CallSeconds> calls_of(const Json& line) {
  if (!line.contains("skew_seconds")) return std::nullopt;
  return CallSeconds{.transfer = number(line, "transfer_seconds"),
                     .exposed_transfer = number(line, "exposed_transfer_seconds"),
                     .skew = number(line, "skew_seconds")};
}

bool is_resumption(const Json& line) { return line.contains("resumed"); }

void remember(const Json& line, History& history) {
  const int ranks = static_cast<int>(integer(line, "ranks"));
  if (is_resumption(line)) {
    history.resumptions.push_back({.step = integer(line, "step"), .ranks = ranks});
  } else if (line.contains("loss")) {
    const bool has_targets = integer(line, "valid_targets") != 0;
    if (has_targets) history.train_loss = number(line, "loss");
    if (!has_targets) ++history.num_without_targets;
    history.logged.push_back({.step = number(line, "step_seconds"),
                              .data = number(line, "data_seconds"),
                              .calls = calls_of(line),
                              .ranks = ranks});
  } else if (line.contains("validation_loss")) {
    history.validation_loss = number(line, "validation_loss");
    for (const auto& [key, value] : line.items()) {
      const bool metric = key.starts_with("validation_") && key != "validation_loss";
      if (metric && value.is_number()) history.validation_metric = value.get<double>();
    }
  }
}

Result<Json> parse_line(std::string_view text, size_t number) {
  auto line = base::parse_json(text, 16, size_t{1} << 20);
  if (line.ok() && line->is_object() && integer(*line, "step") >= 0) return line;
  return base::corrupt(fmt::format(
      "line {} is none of a run's log; move the file away, and the run goes on without it",
      number));
}

}  // namespace

Result<History> rewind_log(const std::filesystem::path& path, int64_t steps) {
  History history{.steps = steps};
  const auto content = base::read_file(path);
  if (content.status().code() == Code::kNotFound) return history;
  HANJI_RETURN_IF_ERROR(content.status());
  history.found = true;
  std::string_view rest = *content;
  size_t kept = 0;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t length = rest.find('\n');
    if (length == rest.npos) break;  // The writer was killed within this line.
    const auto line = parse_line(rest.substr(0, length), number);
    if (!line.ok()) return line.status().at(path.native());
    // A run that resumes here says so itself, even where an earlier try has.
    const int64_t step = integer(*line, "step");
    if (step > steps || (step == steps && is_resumption(*line))) break;
    remember(*line, history);
    rest.remove_prefix(length + 1);
    kept += length + 1;
  }
  if (kept < content->size()) {
    HANJI_RETURN_IF_ERROR(
        base::write_file_atomic(path, std::string_view(*content).substr(0, kept)));
  }
  return history;
}

}  // namespace hanji::train
