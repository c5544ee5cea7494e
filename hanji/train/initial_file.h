#pragma once

#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/safetensors.h"
#include "hanji/plan/config.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// What a job begins with of the file model.init.
struct InitialFile {
  checkpoint::SafetensorsFile file;
  std::vector<checkpoint::SavedTensor> tensors =
      {};                                ///< Views of the file, under the model's names.
  std::vector<std::string> random = {};  ///< Parameters that are not in it.
  int64_t num_unread = 0;                ///< Tensors of the file that the model has not.
  std::vector<checkpoint::ForeignTensor> foreign = {};  ///< Those that hanji could not read.
};

/// Finds the parameters and buffers `wanted` of the model in its file: by name, or as its family renames
/// them, and by shape and type. A tensor of a type that hanji does not read is refused only if it is wanted.
///
/// Errors  those of SafetensorsFile::open(); kMismatch, listing each tensor, unless the file has all that the
///         model's family demands of it.
Result<InitialFile> open_initial_file(const plan::ModelConfig& model,
                                      const std::vector<checkpoint::TensorForm>& wanted);

/// Opens the file for the whole model of a configuration, which is made without memory.
///
/// Result  a line for the user: what is read, and what begins with random values.
/// Errors  as open_initial_file(), and throws those of the model.
Result<std::string> check_initial_file(const plan::Config& config, const Workload& workload);

/// Gives a model, of which this rank may have a part, the values of model.init. Nothing without that key.
/// Errors  as open_initial_file().
Status load_initial_file(const plan::ModelConfig& config, layers::Model& model);

}  // namespace hanji::train
