#pragma once

#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/plan/model_spec.h"

namespace hanji::plan {

/// A model named on the command line.
struct NamedModel {
  std::string name;            ///< As given.
  int64_t num_parameters = 0;  ///< As given: 7 000 000 000 of "gpt:7B"; else that of the model.
  ModelSpec spec;
};

/// "gpt:7B", "gpt:124M": a GPT with that number of parameters, within 1 %, about 128 wide per layer,
/// heads of 64 or 128, a vocabulary of 50304, blocks of 2048 tokens. Or a preset: "gpt2".
///
/// Errors  invalid_argument for other names, and for a size outside 1 M to 10 T.
Result<NamedModel> find_model(std::string_view name);

}  // namespace hanji::plan
