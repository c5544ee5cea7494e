#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/vocabulary.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

struct Job;

struct GenerateOptions {
  std::filesystem::path checkpoint;  ///< A run's folder, its checkpoints, or one of them.
  std::string prompt = "\n";
  int64_t num_tokens = 200;
  double temperature = 0.8;  ///< 0 takes the likeliest token.
  int64_t top_k = 0;         ///< 0: all.
  uint64_t seed = 1;
  /// Called if checkpoints that come before the one that is taken are not good, with the reasons.
  std::function<void(const std::vector<Status>& refused)> on_refused = {};
};

/// Loads the checkpoint's model and continues the prompt.
///
/// Result  prompt and continuation; the same for the same options.
/// Errors  as checkpoint::load_checkpoint(); kUnsupported for a model of bare token ids, which has
///         no text; kInvalidArgument for characters that the vocabulary does not have.
Result<std::string> generate(const GenerateOptions& options);

/// The same with the model of a job, on any of its ranks alone; collective among those that cut one
/// model or share out its layers. `checkpoint` of the options is not read.
Result<std::string> generate_text(const Job& job, const plan::Plan& plan,
                                  const data::Vocabulary& vocabulary,
                                  const GenerateOptions& options);

}  // namespace hanji::train
