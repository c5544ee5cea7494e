#include "hanji/report/live_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

constexpr size_t kTailBytes = size_t{64} << 10;
constexpr int kLeastRanks = 2;
constexpr int kPageHanging = 9;

std::string share_of_step(const std::optional<double>& part, double of) {
  return part && of > 0 ? fmt::format("{:.0f} %", 100 * *part / of) : "-";
}

double per_step(const StepAccount& account) {
  return account.seconds / static_cast<double>(account.steps);
}

/// The step that all ranks have reached; -1: none records steps.
int64_t step_of(const LiveJob& job) {
  int64_t least = -1;
  for (const LiveRank& rank : job.ranks) {
    if (rank.step >= 0 && (least < 0 || rank.step < least)) least = rank.step;
  }
  return least;
}

std::string pace_line(const LiveJob& job) {
  const int64_t step = step_of(job);
  std::string text = "step     ";
  text += step < 0 ? "not recorded" : std::to_string(step);
  if (step >= 0 && job.num_steps > 0) text += fmt::format(" of {}", job.num_steps);
  double seconds = 0;
  for (const LiveRank& rank : job.ranks) {
    if (rank.recent) seconds = std::max(seconds, per_step(*rank.recent));
  }
  if (seconds <= 0) return text + "\n";
  text += fmt::format(", {} each, {:.3g} per second", base::format_seconds(seconds), 1 / seconds);
  if (step >= 0 && job.num_steps > step) {
    text += fmt::format(", {} left",
                        base::format_seconds(seconds * static_cast<double>(job.num_steps - step)));
  }
  return text + "\n";
}

std::vector<std::string> row_of(const LiveRank& rank) {
  std::vector<std::string> row = {std::to_string(rank.rank), rank.state,
                                  rank.step < 0 ? "-" : std::to_string(rank.step)};
  if (const auto& recent = rank.recent) {
    row.push_back(share_of_step(compute_seconds(*recent), recent->seconds));
    row.push_back(share_of_step(recent->data, recent->seconds));
    row.push_back(share_of_step(recent->exposed_transfer, recent->seconds));
    row.push_back(share_of_step(recent->skew, recent->seconds));
    row.push_back(share_of_step(recent->cpu, recent->seconds));
    row.push_back(base::format_bytes(recent->memory_bytes));
  } else {
    row.insert(row.end(), 6, "-");
  }
  row.push_back(rank.resident_bytes ? base::format_bytes(*rank.resident_bytes) : "-");
  row.push_back(rank.phase);
  row.push_back(rank.call);
  return row;
}

std::string table_of(const std::vector<LiveRank>& ranks, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"rank"},
                         {"is", kLeft},
                         {"step"},
                         {"compute"},
                         {"samples"},
                         {"bytes"},
                         {"waits"},
                         {"CPU"},
                         {"tensors"},
                         {"resident"},
                         {"in", kLeft},
                         {"last call", kLeft}});
  for (const LiveRank& rank : ranks) table.add(row_of(rank));
  return table.text(columns);
}

bool runs(const LiveRank& rank) {
  return rank.state == "R" || rank.state == "S" || rank.state == "D";
}

int lines_in(std::string_view text) { return static_cast<int>(std::ranges::count(text, '\n')); }

}  // namespace

std::optional<StepAccount> recent_account(const std::filesystem::path& file, size_t lines) {
  const auto mapped = base::MappedFile::open(file);
  if (!mapped.ok()) return std::nullopt;
  const auto bytes = mapped->bytes();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool is_cut = text.size() > kTailBytes;
  text = text.substr(is_cut ? text.size() - kTailBytes : 0);
  text = text.substr(0, text.rfind('\n') + 1);
  std::vector<std::string_view> all = base::split(text, '\n');
  if (is_cut && !all.empty()) all.erase(all.begin());
  std::vector<StepAccount> last;
  for (auto line = all.rbegin(); line != all.rend() && last.size() < lines; ++line) {
    if (line->empty()) continue;
    auto account = step_account_from_json(*line);
    if (!account.ok()) break;  // the heading of a run or of its resumption
    last.push_back(*std::move(account));
  }
  if (last.empty()) return std::nullopt;
  StepAccount sum = std::move(last.back());
  for (auto one = last.rbegin() + 1; one != last.rend(); ++one) add(sum, *one);
  return sum;
}

std::string live_page(const LiveJob& job, int columns, int rows) {
  std::string text =
      fmt::format("job      {}{}{}\n", job.name, job.what.empty() ? "" : ": ", job.what);
  text += pace_line(job);
  if (!job.verdict.empty()) text += fmt::format("verdict  {}\n", job.verdict);
  text = base::wrap(text, columns, kPageHanging) + "\n";
  std::vector<LiveRank> ranks = job.ranks;
  std::string table = table_of(ranks, columns);
  if (lines_in(text) + lines_in(table) <= rows) return text + table;
  std::ranges::stable_partition(ranks, [](const LiveRank& rank) { return !runs(rank); });
  while (ranks.size() > kLeastRanks && lines_in(text) + lines_in(table) + 1 > rows) {
    ranks.pop_back();
    table = table_of(ranks, columns);
  }
  const auto left_out = static_cast<int64_t>(job.ranks.size() - ranks.size());
  return text + table + fmt::format("and {} more\n", base::counted(left_out, "rank"));
}

}  // namespace hanji::report
