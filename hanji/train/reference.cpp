#include "hanji/train/reference.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/checkpoint/diff.h"
#include "hanji/checkpoint/tensors.h"

namespace hanji::train {

std::filesystem::path Reference::file(const std::filesystem::path& folder, int64_t step) {
  return folder / fmt::format("one_process.{}.safetensors", step);
}

at::Tensor Reference::nearest(int64_t step, const std::string& name, const at::Tensor& found) {
  if (step != step_) {
    file_ = checkpoint::SafetensorsFile::open(file(folder_, step)).or_throw();
    step_ = step;
  }
  const checkpoint::NamedTensor* right = file_->find(name);
  if (right == nullptr || !found.is_floating_point()) return found;
  const std::array<checkpoint::TensorEntry, 1> entry = {{{name, found}}};
  const auto differences = checkpoint::diff({right, 1}, checkpoint::views_of(entry).or_throw());
  if (differences.empty()) return found;
  if (differences[0].kind != checkpoint::DifferenceKind::kValues) return found;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): from_blob has no other, and nobody writes.
  auto* const bytes = const_cast<std::byte*>(right->bytes.data());
  at::Tensor expected = at::from_blob(bytes, right->shape, found.options());
  const double largest = expected.abs().max().item<double>();
  if (!(differences[0].largest <= within_ * largest)) return found;
  farthest_ = std::max(farthest_, differences[0].largest / largest);
  return expected;
}

}  // namespace hanji::train
