#include "hanji/checkpoint/tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "hanji/base/text.h"
#include "hanji/comm/dtype.h"

namespace hanji::checkpoint {
namespace {

constexpr size_t kMaxListed = 20;

Result<NamedTensor> view_of(const TensorEntry& entry) {
  const at::Tensor& tensor = entry.tensor;
  const auto refuse = [&entry](const std::string& why) {
    return base::unsupported(fmt::format("tensor '{}' {}", entry.name, why));
  };
  if (!tensor.defined()) return refuse("is undefined; give it a value first");
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
    return refuse("is not dense on the CPU; move it with .to_dense() and .cpu()");
  }
  if (!tensor.is_contiguous()) return refuse("is not contiguous; save .contiguous() of it");
  try {
    NamedTensor view{.name = entry.name, .dtype = dtype_of(tensor), .shape = tensor.sizes().vec()};
    view.bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
    return view;
  } catch (const Error& error) {
    return refuse(error.what());
  }
}

// Every way in which the tensors of a file and those of a model disagree, one a line.
class Mismatches {
 public:
  void add(std::string line) {
    if (++count_ <= kMaxListed) lines_ += "\n  " + std::move(line);
  }
  Status status() const {
    if (count_ == 0) return {};
    const size_t more = count_ > kMaxListed ? count_ - kMaxListed : 0;
    return base::mismatch(fmt::format(
        "the file holds another model; nothing was loaded:{}{}", lines_,
        more == 0 ? ""
                  : fmt::format("\n  and {} more; is this the checkpoint of this run?", more)));
  }

 private:
  size_t count_ = 0;
  std::string lines_;
};

std::string missing_line(const std::string& name, std::span<const SavedTensor> saved) {
  std::vector<std::string_view> names;
  for (const SavedTensor& tensor : saved) names.push_back(tensor.name);
  const auto near = base::nearest(name, names);
  return fmt::format("'{}' is missing{}", name, near ? " (the nearest is '" + *near + "')" : "");
}

void append(const torch::OrderedDict<std::string, at::Tensor>& from,
            std::vector<TensorEntry>& entries) {
  for (const auto& item : from) entries.push_back({item.key(), item.value()});
}

}  // namespace

std::vector<TensorEntry> parameters_of(const torch::nn::Module& module) {
  std::vector<TensorEntry> entries;
  append(module.named_parameters(), entries);
  return entries;
}

std::vector<TensorEntry> state_of(const torch::nn::Module& module) {
  std::vector<TensorEntry> entries = parameters_of(module);
  append(module.named_buffers(), entries);
  return entries;
}

DType dtype_of(const at::Tensor& tensor) { return comm::to_dtype(tensor.scalar_type()); }

Result<std::vector<NamedTensor>> views_of(std::span<const TensorEntry> entries) {
  std::vector<NamedTensor> views;
  views.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    HANJI_ASSIGN_OR_RETURN(NamedTensor view, view_of(entry));
    views.push_back(std::move(view));
  }
  return views;
}

Status check_forms(std::span<const SavedTensor> saved, std::span<const TensorForm> wanted,
                   std::span<const ForeignTensor> foreign) {
  std::unordered_map<std::string_view, const SavedTensor*> by_name;
  for (const SavedTensor& tensor : saved) by_name[tensor.name] = &tensor;
  std::unordered_map<std::string_view, const ForeignTensor*> foreign_by_name;
  for (const ForeignTensor& tensor : foreign) foreign_by_name[tensor.name] = &tensor;
  Mismatches mismatches;
  std::unordered_set<std::string_view> known;
  for (const TensorForm& tensor : wanted) {
    known.insert(tensor.name);
    const auto found = by_name.find(tensor.name);
    if (const auto of = foreign_by_name.find(tensor.name); of != foreign_by_name.end()) {
      mismatches.add(
          fmt::format("'{}' is {} in the file, a type that hanji does not read, and {} "
                      "here; convert it first",
                      tensor.name, describe(*of->second), describe(tensor.dtype, tensor.shape)));
    } else if (found == by_name.end()) {
      mismatches.add(missing_line(tensor.name, saved));
    } else if (found->second->dtype != tensor.dtype || found->second->shape != tensor.shape) {
      mismatches.add(fmt::format("'{}' is {} in the file and {} here", tensor.name,
                                 describe(found->second->dtype, found->second->shape),
                                 describe(tensor.dtype, tensor.shape)));
    }
  }
  for (const SavedTensor& tensor : saved) {
    if (!known.contains(tensor.name)) {
      mismatches.add(fmt::format("'{}' is in the file and not here", tensor.name));
    }
  }
  for (const ForeignTensor& tensor : foreign) {
    if (!known.contains(tensor.name)) {
      mismatches.add(
          fmt::format("'{}' ({}) is in the file and not here", tensor.name, describe(tensor)));
    }
  }
  return mismatches.status();
}

Status copy_into(const SafetensorsFile& file, std::span<const TensorEntry> entries) {
  return copy_into(in_one_run(file.tensors()), entries, file.foreign());
}

Status copy_into(std::span<const SavedTensor> saved, std::span<const TensorEntry> entries,
                 std::span<const ForeignTensor> foreign) {
  HANJI_ASSIGN_OR_RETURN(const std::vector<NamedTensor> wanted, views_of(entries));
  std::vector<TensorForm> forms;
  for (const NamedTensor& tensor : wanted)
    forms.push_back({tensor.name, tensor.dtype, tensor.shape});
  HANJI_RETURN_IF_ERROR(check_forms(saved, forms, foreign));
  std::unordered_map<std::string_view, const SavedTensor*> by_name;
  for (const SavedTensor& tensor : saved) by_name[tensor.name] = &tensor;
  for (const TensorEntry& entry : entries) {
    const SavedTensor& from = *by_name.at(entry.name);
    const auto width = static_cast<int64_t>(base::size_of(from.dtype));
    auto* to = static_cast<std::byte*>(entry.tensor.mutable_data_ptr());
    for_each_run(from, {0, entry.tensor.numel()}, [&](int64_t first, auto bytes) {
      std::memcpy(to + first * width, bytes.data(), bytes.size());
    });
  }
  return {};
}

}  // namespace hanji::checkpoint
