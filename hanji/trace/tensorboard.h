#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "hanji/base/file.h"

namespace hanji::trace {

/// Writes scalars and text for `tensorboard --logdir`.
///
/// Every call is one write(2): a killed run keeps all of its curve, and nothing is shown late.
class TensorBoardWriter {
 public:
  /// Makes the folder, and in it a new file "events.out.tfevents.<time>.<host>.<pid>.<id>".
  static Result<TensorBoardWriter> open(const std::filesystem::path& directory);

  Status scalar(std::string_view tag, int64_t step, double value);
  /// `text` is shown as Markdown.
  Status text(std::string_view tag, int64_t step, std::string_view text);
  /// For a run that goes on: readers forget what earlier files of the folder say of `step` and of
  /// later steps, so that no step stands twice in a curve. Before the first scalar.
  Status restart(int64_t step);
  /// Waits until the disk has everything.
  Status flush() { return file_.sync(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  TensorBoardWriter(base::OutputFile file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)) {}
  Status write(std::string_view event);

  base::OutputFile file_;
  std::filesystem::path path_;
};

}  // namespace hanji::trace
