#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "hanji/checkpoint/safetensors.h"

namespace hanji::train {

/// The tensors of one process after each step, with which ranks that sum in another order are compared
/// within a bound: a file per step, as Observer keeps them.
///
/// Cost    of a rank one step's file, mapped, and one tensor at a time.
class Reference {
 public:
  /// FOLDER/one_process.STEP.safetensors.
  static std::filesystem::path file(const std::filesystem::path& folder, int64_t step);

  /// `within`: the largest difference, as a part of the largest value of a tensor.
  Reference(std::filesystem::path folder, double within)
      : folder_(std::move(folder)), within_(within) {}

  /// The one process's tensor if `found` is within the bound of it, else `found`. Valid until another step
  /// is asked for.
  /// Errors  throws as SafetensorsFile::open().
  at::Tensor nearest(int64_t step, const std::string& name, const at::Tensor& found);

  /// The largest difference that was within the bound, as a part of the largest value of its tensor.
  double farthest() const { return farthest_; }

 private:
  std::filesystem::path folder_;
  double within_;
  double farthest_ = 0;
  int64_t step_ = -1;  ///< Of the file.
  std::optional<checkpoint::SafetensorsFile> file_;
};

}  // namespace hanji::train
