#include "hanji/train/initial_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "hanji/base/units.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/layers/model.h"
#include "hanji/layout/part.h"
#include "hanji/models/make.h"
#include "hanji/plan/model_family.h"

namespace hanji::train {
namespace {

using checkpoint::ForeignTensor;
using checkpoint::SavedTensor;
using checkpoint::TensorForm;

constexpr size_t kMaxForeignShown = 3;

/// Rows of a tensor, if it can be divided so.
SavedTensor rows_of_file(const checkpoint::NamedTensor& from, const plan::NamedRows& rows) {
  SavedTensor part{.name = rows.name, .dtype = from.dtype, .shape = from.shape};
  auto bytes = from.bytes;
  if (rows.parts > 1 && !from.shape.empty() && from.shape[0] % rows.parts == 0) {
    part.shape[0] /= rows.parts;
    const size_t size = bytes.size() / static_cast<size_t>(rows.parts);
    bytes = bytes.subspan(size * static_cast<size_t>(rows.part), size);
  }
  const auto elements = static_cast<int64_t>(bytes.size() / base::size_of(from.dtype));
  part.runs.push_back({{.size = elements}, bytes});
  return part;
}

/// All that the file has, under the model's names.
Result<std::map<std::string, SavedTensor>> renamed(const checkpoint::SafetensorsFile& file,
                                                   const plan::ModelFamily& family) {
  std::map<std::string, SavedTensor> found;
  for (const checkpoint::NamedTensor& one : file.tensors()) {
    const auto all =
        family.renamed ? family.renamed(one.name) : std::vector<plan::NamedRows>{{one.name}};
    for (const plan::NamedRows& rows : all) {
      if (found.emplace(rows.name, rows_of_file(one, rows)).second) continue;
      return base::mismatch(fmt::format(
          "'{}' and another tensor are both '{}' here; keep one of them", one.name, rows.name));
    }
  }
  return found;
}

/// What hanji does not read of the file, under the model's names.
std::vector<ForeignTensor> foreign_of(const checkpoint::SafetensorsFile& file,
                                      const plan::ModelFamily& family) {
  std::vector<ForeignTensor> found;
  for (const ForeignTensor& one : file.foreign()) {
    const auto all =
        family.renamed ? family.renamed(one.name) : std::vector<plan::NamedRows>{{one.name}};
    for (const plan::NamedRows& rows : all) {
      ForeignTensor& named = found.emplace_back(one);
      named.name = rows.name;
    }
  }
  return found;
}

/// Of a model without memory, or a rank's part of one: names, types and whole shapes.
std::vector<TensorForm> forms_of(const layers::Model& model) {
  const layout::Cut cut = model.cut();
  std::vector<TensorForm> forms;
  for (const auto& [name, tensor] : checkpoint::state_of(model)) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    if (cut.degree > 1) {
      const auto placement = layout::placement_of(cut.placements, name).or_throw();
      shape = layout::whole_shape(placement, std::move(shape)).or_throw();
    }
    forms.push_back({name, checkpoint::dtype_of(tensor), std::move(shape)});
  }
  return forms;
}

/// The elements that this rank has, through memory of the host.
void fill(const at::Tensor& tensor, const SavedTensor& from, const layout::PartLayout& part) {
  const at::Tensor here = at::empty(tensor.sizes(), tensor.scalar_type());
  const auto width = static_cast<int64_t>(here.element_size());
  auto* to = static_cast<std::byte*>(here.mutable_data_ptr());
  for (const layout::PlacedRuns& runs : part.runs({0, part.num_elements()})) {
    for (int64_t i = 0; i < runs.whole.count; ++i) {
      const int64_t begin = runs.part.run(i).begin;
      checkpoint::for_each_run(from, runs.whole.run(i), [&](int64_t first, auto bytes) {
        std::memcpy(to + (begin + first) * width, bytes.data(), bytes.size());
      });
    }
  }
  tensor.detach().copy_(here);
}

}  // namespace

Result<InitialFile> open_initial_file(const plan::ModelConfig& model,
                                      const std::vector<TensorForm>& wanted) {
  const plan::ModelFamily& family = plan::family_of(model);
  HANJI_ASSIGN_OR_RETURN(auto file, checkpoint::SafetensorsFile::open(model.init));
  InitialFile initial{.file = std::move(file)};
  HANJI_ASSIGN_OR_RETURN(auto found, renamed(initial.file, family));
  initial.foreign = foreign_of(initial.file, family);
  std::vector<TensorForm> demanded;
  for (const TensorForm& form : wanted) {
    const auto one = found.find(form.name);
    const bool is_there = one != found.end();
    const bool fits =
        is_there && one->second.shape == form.shape && one->second.dtype == form.dtype;
    if (!fits && !form.name.starts_with(family.trunk)) {
      initial.random.push_back(form.name);
      continue;
    }
    demanded.push_back(form);
    if (!is_there) continue;
    initial.tensors.push_back(std::move(one->second));
    found.erase(one);
  }
  initial.num_unread = std::ssize(found);
  for (const auto& [name, tensor] : found) {
    // Blocks that the model has not, and of a model without a trunk anything.
    if (name.starts_with(family.trunk)) initial.tensors.push_back(tensor);
  }
  std::vector<ForeignTensor> needed;
  for (const ForeignTensor& one : initial.foreign) {
    if (std::ranges::count(demanded, one.name, &TensorForm::name) > 0) needed.push_back(one);
  }
  HANJI_RETURN_IF_ERROR(checkpoint::check_forms(initial.tensors, demanded, needed).at(model.init));
  return initial;
}

Result<std::string> check_initial_file(const plan::Config& config, const Workload& workload) {
  plan::Config resolved = config;
  resolved.model = plan::with_vocabulary(plan::resolved(resolved.model), workload.dataset.num_ids);
  const models::MakeOptions options{.kernels = {.precision = config.compute.dtype},
                                    .classes = workload.dataset.num_ids,
                                    .device = c10::kMeta};
  const auto model =
      workload.make ? workload.make(resolved, options) : models::make(resolved, options);
  HANJI_ASSIGN_OR_RETURN(const InitialFile initial,
                         open_initial_file(resolved.model, forms_of(*model)));
  std::string line =
      fmt::format("begins with {} parameters of {}", initial.tensors.size(), config.model.init);
  if (initial.num_unread > 0)
    line += fmt::format("; {} of its tensors are of other parts", initial.num_unread);
  if (!initial.foreign.empty()) {
    line += fmt::format("; {} of types that hanji does not read",
                        base::counted(std::ssize(initial.foreign), "tensor"));
    for (const ForeignTensor& one :
         std::span(initial.foreign).first(std::min(initial.foreign.size(), kMaxForeignShown))) {
      line += fmt::format("{} {} ({})", &one == initial.foreign.data() ? ":" : ",", one.name,
                          checkpoint::describe(one));
    }
    if (initial.foreign.size() > kMaxForeignShown) line += ", ...";
  }
  if (!initial.random.empty()) {
    line += fmt::format("; it has none of these shapes, which begin with random values: {}",
                        fmt::join(initial.random, ", "));
  }
  return line;
}

Status load_initial_file(const plan::ModelConfig& config, layers::Model& model) {
  if (config.init.empty()) return {};
  HANJI_ASSIGN_OR_RETURN(const InitialFile initial, open_initial_file(config, forms_of(model)));
  const layout::Cut cut = model.cut();
  for (const auto& [name, tensor] : checkpoint::state_of(model)) {
    const auto from = std::ranges::find(initial.tensors, name, &SavedTensor::name);
    // What only layers of other ranks read has its sizes, and no memory.
    if (from == initial.tensors.end() || !tensor.is_non_overlapping_and_dense()) continue;
    auto part = layout::PartLayout::whole(from->shape);
    if (cut.degree > 1) {
      const auto placement = layout::placement_of(cut.placements, name).or_throw();
      part = layout::PartLayout::create(placement, from->shape, cut.index, cut.degree).or_throw();
    }
    fill(tensor, *from, part);
  }
  return {};
}

}  // namespace hanji::train
