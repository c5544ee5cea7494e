#include "hanji/report/run_records.h"

#include <fmt/format.h>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

/// Reads the lines of one rank.
class AccountReader {
 public:
  AccountReader(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  Status add(std::string_view line) {
    if (line.find("\"format\"") != std::string_view::npos) return begin(line);
    if (!counts_) return {};
    HANJI_ASSIGN_OR_RETURN(StepAccount account, step_account_from_json(line));
    if (!accounts_.empty() && account.step <= accounts_.back().step) {
      return base::corrupt(
          fmt::format("step {} follows step {}", account.step, accounts_.back().step));
    }
    accounts_.push_back(std::move(account));
    return {};
  }

  std::vector<StepAccount> take() { return std::move(accounts_); }

 private:
  /// A run, or its resumption after some steps, which then does later ones again.
  Status begin(std::string_view line) {
    HANJI_ASSIGN_OR_RETURN(const base::Json header, base::parse_json(line));
    const auto number = [&](const char* name) {
      return header.contains(name) && header[name].is_number_integer() ? header[name].get<int64_t>()
                                                                       : -1;
    };
    if (number("format") != kAccountFormat) {
      return base::unsupported(
          fmt::format("the format is not {}, which this build reads", kAccountFormat));
    }
    if (number("rank") != rank_) return base::corrupt("it is of another rank");
    const int64_t first_step = number("first_step");
    if (first_step < 0) return base::corrupt("first_step is missing");
    counts_ = number("ranks") == ranks_;  // steps of other numbers of ranks are not like these
    while (!accounts_.empty() && (!counts_ || accounts_.back().step > first_step)) {
      accounts_.pop_back();
    }
    return {};
  }

  int rank_, ranks_;
  bool counts_ = false;
  std::vector<StepAccount> accounts_;
};

Result<std::vector<StepAccount>> read_accounts(const std::filesystem::path& path,
                                               AccountReader reader) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kMaxFile));
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0
  int number = 0;
  for (const std::string_view line : base::split(std::string_view(text).substr(0, whole), '\n')) {
    ++number;
    if (line.empty()) continue;
    const Status status = reader.add(line);
    if (!status.ok()) return status.at(fmt::format("{}:{}", path.string(), number));
  }
  return reader.take();
}

Result<std::string> read_if_there(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::string();
  return base::read_file(path, kMaxFile);
}

}  // namespace

Result<RunRecords> read_run(const std::filesystem::path& folder) {
  RunRecords run{.folder = folder};
  const std::filesystem::path plan = folder / "plan.json";
  if (!std::filesystem::exists(plan)) {
    return base::not_found(fmt::format(
        "{}: no plan.json lies here; name the folder of a run, which is run.out", folder.string()));
  }
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(plan, kMaxFile));
  auto parsed = plan::plan_from_json(text);
  if (!parsed.ok()) return parsed.status().at(plan.string());
  run.plan = *std::move(parsed);
  for (int rank = 0; rank < run.plan.ranks; ++rank) {
    const std::filesystem::path file = folder / account_file(rank);
    if (!std::filesystem::exists(file)) continue;
    HANJI_ASSIGN_OR_RETURN(auto accounts, read_accounts(file, AccountReader(rank, run.plan.ranks)));
    run.ranks.push_back({rank, std::move(accounts)});
  }
  HANJI_ASSIGN_OR_RETURN(run.summary, read_if_there(folder / "summary.json"));
  return run;
}

Result<RunRecords> read_whole_run(const std::filesystem::path& folder) {
  HANJI_ASSIGN_OR_RETURN(RunRecords run, read_run(folder));
  HANJI_ASSIGN_OR_RETURN(run.certificate, read_if_there(folder / "certificate.json"));
  HANJI_ASSIGN_OR_RETURN(run.flight, read_if_there(folder / "logs" / "flight.json"));
  HANJI_ASSIGN_OR_RETURN(run.log, read_training_log(folder / "run.jsonl"));
  HANJI_ASSIGN_OR_RETURN(run.operations, read_operations(folder));
  return run;
}

}  // namespace hanji::report
