#include "hanji/cli/pipeline_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <limits>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::cli {
namespace {

using schedule::PipelineKind;
using schedule::PipelineSchedule;
using schedule::StageSeconds;

constexpr int kWidthOfFiles = 100;
constexpr int kMaxWidth = 10'000;

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse_name(const std::string& name) {
  std::vector<std::string_view> names;
  for (const PipelineKind kind : schedule::pipeline_kinds()) names.push_back(name_of(kind));
  const auto meant = base::nearest(name, names);
  throw Error(base::invalid_argument(
      fmt::format("--schedule: unknown '{}'; schedules: {}, or a FILE.csv{}", name,
                  fmt::join(names, ", "), meant ? fmt::format("; did you mean {}?", *meant) : "")));
}

PipelineSchedule schedule_named(const std::string& name, int ranks,
                                const PipelineOptions& options) {
  if (const auto kind = schedule::pipeline_kind_named(name)) {
    return pipeline_schedule(*kind, {ranks, options.micro_batches,
                                     stages_per_rank(*kind, options.virtual_stages)})
        .or_throw();
  }
  if (name.find_first_of("./") == std::string::npos) refuse_name(name);
  const std::string text = base::read_file(name, size_t{64} << 20).or_throw();
  auto read = schedule::pipeline_from_csv(text);
  if (!read.ok()) throw Error(read.status().at(name));
  return *std::move(read);
}

StageSeconds parse_times(const std::string& text) {
  const auto parts = parts_of(text, '/');
  std::vector<double> seconds;
  for (const std::string& part : parts) {
    const auto value = base::parse_seconds(part);
    if (!value.ok()) throw Error(value.status().at("--times"));
    seconds.push_back(*value);
  }
  if (seconds.size() == 3) return {seconds[0], seconds[1], seconds[2]};
  throw Error(base::invalid_argument(
      fmt::format("--times: '{}' has {} parts; write forward, backward_input and backward_weight, "
                  "such as 10ms/12ms/8ms",
                  text, seconds.size())));
}

/// The model is cut into as many equal parts as times are given, a part into the stages in it.
std::vector<StageSeconds> stage_times(const std::string& times, const PipelineSchedule& schedule) {
  const auto parts = parts_of(times, ',');
  const int ranks = schedule.shape.num_ranks;
  if (parts.size() != 1 && parts.size() != static_cast<size_t>(ranks)) {
    throw Error(base::invalid_argument(fmt::format(
        "--times has {} entries for {} ranks; give one, or one per rank", parts.size(), ranks)));
  }
  std::vector<StageSeconds> stages;
  const double share = static_cast<double>(ranks) / schedule.num_stages();
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const size_t part =
        parts.size() == 1 ? 0 : static_cast<size_t>(stage * ranks / schedule.num_stages());
    const StageSeconds whole = parse_times(parts[part]);
    stages.push_back(
        {whole.forward * share, whole.backward_input * share, whole.backward_weight * share});
  }
  return stages;
}

}  // namespace

void PipelineOptions::add_to(Verb verb) {
  std::vector<std::string_view> names;
  for (const PipelineKind kind : schedule::pipeline_kinds()) names.push_back(name_of(kind));
  const Option schedule = verb.add_option(
      "--schedule", &schedules,
      fmt::format("instead of a routine, pipelines to draw: {}, or a FILE.csv; several with commas",
                  fmt::join(names, ", ")));
  schedule.type_name("NAME");
  verb.add_option("-m,--micro-batches", &micro_batches, "of a step")
      .type_name("M")
      .show_default()
      .needs(schedule);
  verb.add_option("-v,--virtual-stages", &virtual_stages,
                  "stages per rank, of interleaved, bfs and interleaved_zb")
      .type_name("V")
      .range(1, 64)
      .show_default()
      .needs(schedule);
  verb.add_option(
          "--times", &times,
          "forward/backward_input/backward_weight of one micro-batch on a rank's layers; one "
          "entry, or one per rank with commas")
      .type_name("TIMES")
      .show_default()
      .needs(schedule);
  verb.add_option("--buffers", &buffered_messages,
                  "messages from one rank to another that may wait; default: any number")
      .type_name("N")
      .not_negative()
      .needs(schedule);
  verb.add_option("--svg", &svg, "writes the charts there as well")
      .type_name("FILE")
      .needs(schedule);
  verb.add_option("--csv", &csv, "writes the computations of the first schedule, to be edited")
      .type_name("FILE")
      .needs(schedule);
  verb.add_option("--width", &width, "of the charts; default: the terminal's, else 100")
      .type_name("COLUMNS")
      .range(40, kMaxWidth)
      .needs(schedule);
}

std::vector<report::PipelineChart> PipelineOptions::charts(int ranks,
                                                           double latency_seconds) const {
  std::vector<report::PipelineChart> charts;
  for (const std::string& name : parts_of(schedules, ',')) {
    report::PipelineChart chart{name, schedule_named(name, ranks, *this), {}};
    schedule::PipelineTimes given{stage_times(times, chart.schedule), latency_seconds};
    if (buffered_messages > 0) given.buffered_messages = buffered_messages;
    const Status proved = check(chart.schedule, given.buffered_messages);
    if (!proved.ok()) throw Error(proved.at(name));
    chart.timeline = simulate(chart.schedule, given).or_throw();
    charts.push_back(std::move(chart));
  }
  return charts;
}

report::ChartStyle PipelineOptions::style() const {
  report::ChartStyle style{kWidthOfFiles, isatty(STDOUT_FILENO) != 0};
  winsize size{};
  if (style.colour && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = size.ws_col;
  }
  if (width > 0) style.width = width;
  return style;
}

}  // namespace hanji::cli
