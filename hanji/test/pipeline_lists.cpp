// hanji_pipeline_lists RANKS MICRO_BATCHES STAGES_PER_RANK: every pipeline schedule of every kind and
// size up to these, each proved first: a line "KIND RANKS MICRO_BATCHES STAGES_PER_RANK", then a line of
// codes per rank.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace {

using hanji::schedule::PipelineSchedule;

void print(const PipelineSchedule& schedule) {
  const auto [ranks, micro_batches, stages] = schedule.shape;
  std::printf("%s %d %ld %d\n", std::string(name_of(schedule.kind)).c_str(), ranks,
              static_cast<long>(micro_batches), stages);
  for (const auto& actions : schedule.ranks) {
    std::string line;
    for (const auto& action : actions) line += (line.empty() ? "" : ",") + to_code(action);
    std::puts(line.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (const auto kind : hanji::schedule::pipeline_kinds()) {
    for (int p = 1; p <= std::atoi(argv[1]); ++p) {
      for (int m = 1; m <= std::atoi(argv[2]); ++m) {
        for (int v = 1; v <= std::atoi(argv[3]); ++v) {
          const auto schedule = hanji::schedule::pipeline_schedule(kind, {p, m, v});
          if (!schedule.ok()) continue;
          hanji::base::throw_if_error(check(*schedule, least_buffered_messages(*schedule)));
          print(*schedule);
        }
      }
    }
  }
  return 0;
}
