#include "hanji/cli/pipeline_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <limits>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/cli/print_text.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"
#include "hanji/schedule/pipeline_check.h"

namespace hanji::cli {
namespace {

using schedule::PipelineKind;
using schedule::PipelineSchedule;
using schedule::StageSeconds;

constexpr int kMaxWidth = 10'000;

PipelineSchedule schedule_named(const std::string& name, int ranks,
                                const PipelineOptions& options) {
  if (const auto kind = schedule::pipeline_kind_named(name)) {
    return pipeline_schedule(*kind, {ranks, options.micro_batches,
                                     stages_per_rank(*kind, options.virtual_stages)})
        .or_throw();
  }
  return plan::read_pipeline(name).or_throw();
}

StageSeconds parse_times(std::string_view text) {
  const auto parts = base::split(text, '/');
  std::vector<double> seconds;
  for (const std::string_view part : parts) {
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

/// Of the stages of a model by --model, or of a run whose operations were timed.
std::vector<StageSeconds> times_of_model(const PipelineOptions& options,
                                         const PipelineSchedule& schedule) {
  const auto of = [&](const plan::ModelFacts& model, const plan::OperationTimes& times,
                      int64_t samples) {
    return plan::stage_times(model, times, schedule.num_stages(), static_cast<double>(samples))
        .or_throw();
  };
  if (options.model.asked()) {
    const plan::NamedModel found = options.model.find({}, {}).or_throw();
    return of(options.model.recompute() ? found.recomputed : found.facts, {},
              options.model.micro_batch());
  }
  const std::string text = base::read_file(options.times).or_throw();
  const auto run = plan::plan_from_json(text);
  if (!run.ok()) throw Error(run.status().at("--times " + options.times));
  return of(run->model, run->times, run->micro_batch);
}

/// The model is cut into as many equal parts as times are given, a part into the stages in it.
std::vector<StageSeconds> stage_times(const std::string& times, const PipelineSchedule& schedule) {
  std::vector<StageSeconds> parts;
  for (const std::string_view part : base::split(times, ',')) parts.push_back(parse_times(part));
  const auto given = static_cast<int64_t>(parts.size());
  if (given != 1 && given != schedule.shape.num_ranks) {
    throw Error(base::invalid_argument(
        fmt::format("--times has {} entries for {}; give one, or one "
                    "per rank",
                    given, base::counted(schedule.shape.num_ranks, "rank"))));
  }
  std::vector<StageSeconds> stages;
  const int64_t count = schedule.num_stages();
  const double share = static_cast<double>(schedule.shape.num_ranks) / static_cast<double>(count);
  for (int64_t stage = 0; stage < count; ++stage) {
    const StageSeconds& part = parts[static_cast<size_t>(stage * given / count)];
    stages.push_back(
        {part.forward * share, part.backward_input * share, part.backward_weight * share});
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
      .range(1, 1 << 20)
      .show_default()
      .needs(schedule);
  verb.add_option("-v,--virtual-stages", &virtual_stages,
                  "stages per rank, of interleaved, bfs and interleaved_zb")
      .type_name("V")
      .range(1, 64)
      .show_default()
      .needs(schedule);
  const Option by_times =
      verb.add_option(
              "--times", &times,
              "forward/backward_input/backward_weight of one micro-batch on a rank's layers; one "
              "entry, or one per rank with commas; or the plan.json of a run, whose stages are cut "
              "anew "
              "by the times measured for it")
          .type_name("TIMES")
          .show_default()
          .needs(schedule);
  model.add_model(verb, "whose layers are cut into stages, by estimates of their times")
      .needs(schedule)
      .excludes(by_times);
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
  verb.add_option("--width", &width, "of the charts; default: the terminal's, else 80")
      .type_name("COLUMNS")
      .range(40, kMaxWidth)
      .needs(schedule);
}

std::vector<report::PipelineChart> PipelineOptions::charts(int ranks,
                                                           double latency_seconds) const {
  std::vector<report::PipelineChart> charts;
  for (const std::string_view part : base::split(schedules, ',')) {
    const std::string name(part);
    report::PipelineChart chart{name, schedule_named(name, ranks, *this), {}};
    const bool of_model = model.asked() || times.ends_with(".json");
    schedule::PipelineTimes given{
        of_model ? times_of_model(*this, chart.schedule) : stage_times(times, chart.schedule),
        latency_seconds};
    if (buffered_messages > 0) given.buffered_messages = buffered_messages;
    const Status proved = check(chart.schedule, given.buffered_messages);
    if (!proved.ok()) throw Error(proved.at(name));
    chart.timeline = simulate(chart.schedule, given).or_throw();
    charts.push_back(std::move(chart));
  }
  return charts;
}

report::ChartStyle PipelineOptions::style() const {
  report::ChartStyle style{output_columns(), isatty(STDOUT_FILENO) != 0};
  if (width > 0) style.width = width;
  return style;
}

}  // namespace hanji::cli
