#include <fmt/format.h>

#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/find_job.h"
#include "hanji/launch/flight_record.h"
#include "hanji/shm/hang.h"
#include "hanji/shm/snapshot_text.h"

namespace hanji::cli {
namespace {

struct Options {
  std::string target;
  bool as_json = false;
  size_t num_calls = 0;
};

/// Of a run that has failed.
Result<std::string> look_back(const Options& options) {
  HANJI_ASSIGN_OR_RETURN(auto record, launch::read_flight_record(options.target));
  if (options.as_json) return std::move(record.json);
  const double age = static_cast<double>(base::wall_ns() - record.wall_ns) / 1e9;
  return fmt::format("no process of this job lives; {}, written {} ago, says:\n{}",
                     record.path.string(), base::format_seconds(age), record.text);
}

Result<std::string> look_at(const Options& options) {
  const auto job = launch::find_job(options.target);
  if (job.status().code() == Code::kNotFound) {
    auto past = look_back(options);
    if (past.ok() || past.status().code() == Code::kCorrupt) return past;
  }
  HANJI_RETURN_IF_ERROR(job.status());
  HANJI_ASSIGN_OR_RETURN(const shm::Snapshot snapshot, shm::take_snapshot(job->segment));
  const shm::HangVerdict verdict = shm::judge(snapshot);
  if (options.as_json) return shm::to_json(snapshot, verdict, options.num_calls);
  std::string text = verdict.sentence + "\n\n" + shm::table(snapshot);
  if (options.num_calls > 0) text += "\n" + shm::list_calls(snapshot, options.num_calls);
  return text;
}

}  // namespace

void add_debug(Verb command) {
  const Verb verb = command.add_verb("debug", "Say why a job does not go on, or did not");
  auto options = std::make_shared<Options>();
  verb.add_option("job", &options->target,
                  "folder of the run or of its logs, or process id of launcher or rank")
      .type_name("DIR|PID")
      .required();
  verb.add_flag("--json", &options->as_json, "verdict and table as one JSON object");
  verb.add_option("--calls", &options->num_calls,
                  "also the last N completed calls of each rank, at most 4096; default: 0")
      .type_name("N")
      .range(size_t{0}, shm::kFlightCalls);
  verb.on_chosen([=] {
    const auto text = look_at(*options);
    if (text.ok()) {
      std::cout << *text << std::flush;
      return 0;
    }
    std::cerr << "hanji: " << text.status().message() << "\n";
    return exit_code(text.status().code());
  });
}

}  // namespace hanji::cli
