#include "hanji/report/pipeline_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/pipeline_figures.h"
#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::report {
namespace {

using schedule::Action;
using schedule::ActionKind;

constexpr int kMaxColumns = 6;  // of the shortest computation
constexpr int kMinColumns = 2;
constexpr int kMaxBands = 64;

/// What fills a computation after its number, and its colours; of the first stage of a rank, and of
/// every second one.
struct Look {
  char fill[2];
  uint8_t colours[2];
};

Look look_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return {{'-', '+'}, {44, 104}};
    case ActionKind::kBackwardInput: return {{'<', '('}, {46, 106}};
    case ActionKind::kBackwardWeight: return {{'~', '*'}, {43, 103}};
    default: return {{'=', '#'}, {42, 102}};
  }
}

constexpr std::string_view kLegend =
    "0- forward, 0= backward, 0< backward_input, 0~ backward_weight of micro-batch 0; blank: "
    "idle\n";
constexpr std::string_view kLegendOfLoops =
    "every second stage of a rank: 0+ forward, 0# backward, 0( backward_input, 0* "
    "backward_weight\n";

struct Scale {
  double columns_per_second = 1;
  int columns = 80;  // of a line
  int column_of(double seconds) const {
    return static_cast<int>(std::lround(seconds * columns_per_second));
  }
};

/// Shortest computation that takes time, over all charts.
double shortest(std::span<const PipelineChart> charts, double longest) {
  double least = longest;
  for (const PipelineChart& chart : charts) {
    for (size_t rank = 0; rank < chart.schedule.ranks.size(); ++rank) {
      for (size_t i = 0; i < chart.schedule.ranks[rank].size(); ++i) {
        if (!is_compute(chart.schedule.ranks[rank][i].kind)) continue;
        const auto& span = chart.timeline.ranks[rank][i];
        if (span.end - span.begin > longest * 1e-9) least = std::min(least, span.end - span.begin);
      }
    }
  }
  return least;
}

Scale scale_of(std::span<const PipelineChart> charts, int columns) {
  double longest = 0;
  for (const PipelineChart& chart : charts) longest = std::max(longest, chart.timeline.seconds);
  if (longest <= 0) return {1, columns};
  const double unit = shortest(charts, longest);
  const double fit = columns * unit / longest;  // columns of the shortest, all on one line
  const double whole = std::clamp(std::floor(fit + 1e-9), double{kMinColumns}, double{kMaxColumns});
  return {std::min(whole, fit * kMaxBands) / unit, columns};
}

/// A rank's line of all time: a character per column, and whose it is.
struct Row {
  std::string text;
  std::vector<uint8_t> colours;  // 0: idle
};

/// `visits`: those of the schedule's stages.
Row row_of(const PipelineChart& chart, const std::vector<int>& visits, size_t rank,
           const Scale& scale) {
  Row row;
  const size_t length = static_cast<size_t>(scale.column_of(chart.timeline.seconds));
  row.text.assign(length, ' ');
  row.colours.assign(length, 0);
  for (size_t i = 0; i < chart.schedule.ranks[rank].size(); ++i) {
    const Action& action = chart.schedule.ranks[rank][i];
    if (!is_compute(action.kind)) continue;
    const auto begin = static_cast<size_t>(scale.column_of(chart.timeline.ranks[rank][i].begin));
    const auto end = static_cast<size_t>(scale.column_of(chart.timeline.ranks[rank][i].end));
    if (begin == end) continue;
    const int other = visits[action.stage] % 2;
    const Look look = look_of(action.kind);
    std::string label = std::to_string(action.micro_batch);
    if (label.size() >= end - begin) label = label.back();
    std::fill(row.text.begin() + begin, row.text.begin() + end, look.fill[other]);
    std::copy(label.begin(), label.end(), row.text.begin() + begin);
    std::fill(row.colours.begin() + begin, row.colours.begin() + end, look.colours[other]);
  }
  return row;
}

std::string piece_of(const Row& row, size_t begin, size_t end, bool colour) {
  end = std::min(end, row.text.size());
  while (end > begin && row.colours[end - 1] == 0) --end;
  if (!colour) return row.text.substr(begin, end - begin);
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const int before = i == begin ? 0 : row.colours[i - 1];
    if (row.colours[i] != before) text += "\x1b[0m";
    if (row.colours[i] != before && row.colours[i] != 0)
      text += fmt::format("\x1b[30;{}m", row.colours[i]);
    text += row.text[i];
  }
  return text + "\x1b[0m";
}

std::string chart_text(const PipelineChart& chart, const Scale& scale, bool colour) {
  const std::vector<int> visits = internal::visits_of(chart.schedule);
  std::vector<Row> rows;
  for (size_t rank = 0; rank < chart.schedule.ranks.size(); ++rank) {
    rows.push_back(row_of(chart, visits, rank, scale));
  }
  std::string text = internal::title_of(chart) + "\n";
  const auto columns = static_cast<size_t>(scale.columns);
  for (size_t begin = 0; begin < rows.front().text.size(); begin += columns) {
    if (begin > 0) {
      text += fmt::format("  from {}\n", base::format_seconds(static_cast<double>(begin) /
                                                              scale.columns_per_second));
    }
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      text +=
          fmt::format("{:>4} |{}\n", rank, piece_of(rows[rank], begin, begin + columns, colour));
    }
  }
  return text + "\n";
}

std::string table_text(std::span<const PipelineChart> charts, int columns) {
  base::TextTable table({{"schedule", base::TextTable::Align::kLeft},
                         {"stages"},
                         {"time"},
                         {"bubble"},
                         {"idle inside"},
                         {"in flight"},
                         {"messages"},
                         {"buffers"}});
  for (const PipelineChart& chart : charts) {
    const internal::PipelineFigures figures = internal::figures_of(chart);
    table.add({chart.name, std::to_string(chart.schedule.num_stages()),
               base::format_seconds(chart.timeline.seconds),
               fmt::format("{:.4f}", chart.timeline.bubble()),
               fmt::format("{:.4f}", figures.idle_inside),
               fmt::format("{:g}", figures.ranks_in_flight),
               fmt::format("{} + {}", figures.forward_messages, figures.backward_messages),
               std::to_string(figures.buffers)});
  }
  return table.text(columns) +
         base::wrap(
             "bubble: time beyond the work of the busiest rank, over that work; idle inside: "
             "between a rank's first and last computation; in flight: activations kept at once, "
             "of a rank's layers; messages: of outputs + of gradients; buffers: messages per pair "
             "without which ranks deadlock\n",
             columns);
}

}  // namespace

std::vector<int> internal::visits_of(const schedule::PipelineSchedule& schedule) {
  std::vector<int> of_rank(schedule.ranks.size()), visits;
  for (const int rank : schedule.rank_of_stage) visits.push_back(of_rank[rank]++);
  return visits;
}

std::string internal::title_of(const PipelineChart& chart) {
  const auto& shape = chart.schedule.shape;
  return fmt::format("{}: {}, {}, {} micro-batch{}, {}, bubble {:.4f}", chart.name,
                     base::counted(shape.num_ranks, "rank"),
                     base::counted(chart.schedule.num_stages(), "stage"), shape.num_micro_batches,
                     shape.num_micro_batches == 1 ? "" : "es",
                     base::format_seconds(chart.timeline.seconds), chart.timeline.bubble());
}

internal::PipelineFigures internal::figures_of(const PipelineChart& chart) {
  PipelineFigures figures;
  for (const schedule::ActionList& actions : chart.schedule.ranks) {
    const double stages = static_cast<double>(chart.schedule.num_stages()) /
                          static_cast<double>(chart.schedule.shape.num_ranks);
    figures.in_flight.push_back(max_in_flight(actions));
    figures.ranks_in_flight =
        std::max(figures.ranks_in_flight, static_cast<double>(figures.in_flight.back()) / stages);
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kSend) continue;
      ++(action.peer > action.stage ? figures.forward_messages : figures.backward_messages);
    }
  }
  const double work = chart.timeline.busiest_seconds;
  figures.idle_inside = work > 0 ? chart.timeline.idle_inside_seconds / work : 0;
  figures.buffers = least_buffered_messages(chart.schedule);
  return figures;
}

std::string to_text(std::span<const PipelineChart> charts, const ChartStyle& style) {
  const Scale scale = scale_of(charts, std::max(style.width - 6, 20));
  std::string text;
  bool loops = false;
  for (const PipelineChart& chart : charts) {
    text += chart_text(chart, scale, style.colour);
    loops = loops || chart.schedule.num_stages() > chart.schedule.shape.num_ranks;
  }
  text += fmt::format("{}{}one column: {}\n\n", kLegend, loops ? kLegendOfLoops : "",
                      base::format_seconds(1 / scale.columns_per_second));
  return text + table_text(charts, style.width);
}

std::string to_json(std::span<const PipelineChart> charts) {
  base::Json all = base::Json::array();
  for (const PipelineChart& chart : charts) {
    const internal::PipelineFigures figures = internal::figures_of(chart);
    base::Json ranks = base::Json::array();
    for (size_t rank = 0; rank < chart.schedule.ranks.size(); ++rank) {
      base::Json codes = base::Json::array(), begins = codes, ends = codes;
      for (const Action& action : chart.schedule.ranks[rank]) codes.push_back(to_code(action));
      for (const auto& span : chart.timeline.ranks[rank]) {
        begins.push_back(span.begin);
        ends.push_back(span.end);
      }
      ranks.push_back({{"actions", std::move(codes)},
                       {"begin", std::move(begins)},
                       {"end", std::move(ends)},
                       {"in_flight", figures.in_flight[rank]}});
    }
    all.push_back({{"name", chart.name},
                   {"micro_batches", chart.schedule.shape.num_micro_batches},
                   {"rank_of_stage", chart.schedule.rank_of_stage},
                   {"seconds", chart.timeline.seconds},
                   {"busiest_seconds", chart.timeline.busiest_seconds},
                   {"bubble", chart.timeline.bubble()},
                   {"idle_inside", figures.idle_inside},
                   {"forward_messages", figures.forward_messages},
                   {"backward_messages", figures.backward_messages},
                   {"buffered_messages", figures.buffers},
                   {"ranks", std::move(ranks)}});
  }
  return base::dump(base::Json({{"schedules", std::move(all)}})) + "\n";
}

}  // namespace hanji::report
