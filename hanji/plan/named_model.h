#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/plan/config.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/model_spec.h"

namespace hanji::plan {

/// A model named on the command line.
struct NamedModel {
  std::string name;            ///< As given.
  int64_t num_parameters = 0;  ///< As given: 7 000 000 000 of "gpt:7B"; else that of the model.
  std::string sizes;           ///< In words, after the number of parameters.
  ModelFacts facts = {};
  ModelFacts recomputed = {};  ///< With layers that keep only their input and are computed twice.
  std::optional<ModelSpec> gpt = {};  ///< Of a GPT: how axes cut its layers is known, too.
};

/// The properties that the facts of a model depend on; micro_batch and recompute are not read.
using FactsOptions = ActivationOptions;

/// "gpt:7B", "gpt:124M": a GPT with that number of parameters, within 1 %, about 128 wide per layer,
/// heads of 64 or 128, a vocabulary of 50304, blocks of 2048 tokens. Or a GPT's preset: "gpt2".
/// `sizes` replaces those of a preset, and the block of either.
///
/// Errors  invalid_argument for other names, for a size outside 1 M to 10 T and a block below 1.
Result<NamedModel> find_model(std::string_view name, const FactsOptions& options,
                              ModelConfig sizes = {});

/// A model whose layers were counted in a forward and backward.
struct CountedModel {
  Precision precision = Precision::kFloat32;  ///< In which they were counted.
  ModelFacts facts = {};
  ModelFacts recomputed = {};
};

/// Returns the model in `precision`: bytes of activations are scaled by the ratio of the widths. `sample`: of what it
/// was counted, in words; empty: unknown.
NamedModel named(std::string_view name, const CountedModel& counted, Precision precision,
                 std::string_view sample = {});

/// The sample of a preset that is counted: "images of 224 x 224 pixels in 1000 classes", "256 residues by 128 sequences".
std::string describe_sample(const Config& config);

/// The file of hanji::describe(); strict, errors are kCorrupt and name every member that is wrong.
std::string to_json(const CountedModel& model);
Result<CountedModel> counted_model_from_json(std::string_view text);

}  // namespace hanji::plan
