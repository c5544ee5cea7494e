#pragma once

#include <span>
#include <vector>

#include "hanji/report/slow_ranks.h"

namespace hanji::report {

/// What a replayed step does without.
struct Without {
  bool data = false;                          ///< Samples are there.
  bool transfer = false;                      ///< Bytes move at once.
  bool stolen = false;                        ///< Every rank has its CPUs for itself.
  bool unevenness = false;                    ///< Work is shared out evenly.
  bool bubble = false;                        ///< Stages of a pipeline never wait to be filled.
  std::span<const SlowRank> slow_ranks = {};  ///< These compute as fast as the others.
};

/// Steps of a run, put together again from what each rank did in them.
///
/// Ranks compute and wait for samples, then meet; those of a pipeline act in the order of its schedule, each action as
/// long as its share of what its rank computed. Bytes that nothing hides move then. seconds({}) is to be close to the
/// measured step: what it misses is waiting within a step, where ranks meet several times.
/// Cost    of at most 32 lines; of a pipeline, its schedule's actions for each line.
class Replay {
 public:
  Replay(const plan::Plan& plan, const std::vector<LineParts>& lines);

  /// The mean of a step.
  double seconds(const Without& without) const;

 private:
  std::vector<double> own_seconds(const LineParts& line, const Without& without) const;
  double meeting(const LineParts& line, const Without& without) const;
  double of_pipelines(const LineParts& line, const std::vector<double>& own, bool waits) const;

  const plan::Plan& plan_;
  std::vector<LineParts> lines_;
  std::vector<double> work_;
  std::vector<schedule::PipelineSchedule>
      schedules_;                               ///< By data coordinate; empty without pipelines.
  std::vector<schedule::StageSeconds> stages_;  ///< Planned, of one sample.
  std::vector<std::vector<size_t>> pipelines_;  ///< Ranks by their place along "pp".
  std::vector<int> place_of_stage_;
  std::vector<double> planned_;  ///< Seconds of a sample at each place.
};

}  // namespace hanji::report
