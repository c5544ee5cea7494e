#include "hanji/checkpoint/tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

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
    NamedTensor view{.name = entry.name,
                     .dtype = comm::to_dtype(tensor.scalar_type()),
                     .shape = tensor.sizes().vec()};
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

using ByName = std::unordered_map<std::string_view, const NamedTensor*>;

std::string missing_line(const std::string& name, std::span<const NamedTensor> saved) {
  std::vector<std::string_view> names;
  for (const NamedTensor& tensor : saved) names.push_back(tensor.name);
  const auto near = base::nearest(name, names);
  return fmt::format("'{}' is missing{}", name, near ? " (the nearest is '" + *near + "')" : "");
}

Status compare(std::span<const NamedTensor> all, const ByName& saved,
               std::span<const NamedTensor> wanted) {
  Mismatches mismatches;
  std::unordered_set<std::string_view> known;
  for (const NamedTensor& tensor : wanted) {
    known.insert(tensor.name);
    const auto found = saved.find(tensor.name);
    if (found == saved.end()) {
      mismatches.add(missing_line(tensor.name, all));
    } else if (found->second->dtype != tensor.dtype || found->second->shape != tensor.shape) {
      mismatches.add(fmt::format("'{}' is {} in the file and {} here", tensor.name,
                                 describe(found->second->dtype, found->second->shape),
                                 describe(tensor.dtype, tensor.shape)));
    }
  }
  for (const NamedTensor& tensor : all) {
    if (!known.contains(tensor.name)) {
      mismatches.add(fmt::format("'{}' is in the file and not here", tensor.name));
    }
  }
  return mismatches.status();
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

Result<std::vector<NamedTensor>> views_of(std::span<const TensorEntry> entries) {
  std::vector<NamedTensor> views;
  views.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    HANJI_ASSIGN_OR_RETURN(NamedTensor view, view_of(entry));
    views.push_back(std::move(view));
  }
  return views;
}

Status copy_into(const SafetensorsFile& file, std::span<const TensorEntry> entries) {
  return copy_into(file.tensors(), entries);
}

Status copy_into(std::span<const NamedTensor> all, std::span<const TensorEntry> entries) {
  HANJI_ASSIGN_OR_RETURN(const std::vector<NamedTensor> wanted, views_of(entries));
  ByName saved;
  for (const NamedTensor& tensor : all) saved[tensor.name] = &tensor;
  HANJI_RETURN_IF_ERROR(compare(all, saved, wanted));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const NamedTensor& from = *saved.at(wanted[i].name);
    if (!from.bytes.empty()) {
      std::memcpy(entries[i].tensor.mutable_data_ptr(), from.bytes.data(), from.bytes.size());
    }
  }
  return {};
}

}  // namespace hanji::checkpoint
