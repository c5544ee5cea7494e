#include "hanji/checkpoint/module_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "hanji/base/atomic_file.h"
#include "hanji/base/checksum.h"
#include "hanji/base/file.h"
#include "hanji/checkpoint/internal/optimizer_state.h"
#include "hanji/checkpoint/tensors.h"

// Metadata of a file: "hanji.optimizer" (its kind, or "none"), "xxh3.NAME" for every tensor, and
// "hanji.seal", the XXH3 of all metadata and of every tensor's name, type and shape.
namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;
using internal::kOptimizerPrefix;
using torch::optim::Optimizer;

constexpr const char* kKind = "hanji.optimizer";
constexpr const char* kSeal = "hanji.seal";
constexpr std::string_view kChecksum = "xxh3.";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::string checksum_key(const NamedTensor& tensor) { return std::string(kChecksum) + tensor.name; }

/// Over the tensors in the order of their names; a map's own order.
std::string seal_of(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::map<std::string_view, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  std::string text;
  for (const auto& [key, value] : metadata) {
    if (key != kSeal) text += fmt::format("{}={}\n", key, value);
  }
  for (const auto& [name, tensor] : by_name) {
    text += fmt::format("{} {}\n", name, describe(tensor->dtype, tensor->shape));
  }
  return hex(base::xxh3(std::as_bytes(std::span(text))));
}

bool was_sealed(const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key.starts_with("hanji.") || key.starts_with(kChecksum)) return true;
  }
  return false;
}

/// Every checksum that the file claims, and that it claims one for all.
Status verify(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  if (!was_sealed(metadata)) return {};
  for (const NamedTensor& tensor : file.tensors()) {
    const auto saved = metadata.find(checksum_key(tensor));
    if (saved == metadata.end() || saved->second != hex(base::xxh3(tensor.bytes))) {
      return base::corrupt(
          fmt::format("tensor '{}' does not have the checksum that was saved: its "
                      "bytes changed",
                      tensor.name));
    }
  }
  const bool complete =
      metadata.contains(kKind) && metadata.contains(kSeal) && file.foreign().empty();
  if (complete && metadata.at(kSeal) == seal_of(file.tensors(), metadata)) return {};
  return base::corrupt("its header changed since it was saved");
}

/// Dense copies, where a tensor is not dense on the CPU already.
std::vector<TensorEntry> dense(std::vector<TensorEntry> entries) {
  for (TensorEntry& entry : entries) {
    if (entry.tensor.defined() && entry.tensor.layout() == at::kStrided) {
      entry.tensor = entry.tensor.detach().cpu().contiguous();
    }
  }
  return entries;
}

Status write(const fs::path& path, std::vector<TensorEntry> entries, Metadata metadata) {
  entries = dense(std::move(entries));
  HANJI_ASSIGN_OR_RETURN(const auto views, views_of(entries));
  for (const NamedTensor& tensor : views) {
    metadata[checksum_key(tensor)] = hex(base::xxh3(tensor.bytes));
  }
  metadata["format"] = "pt";
  metadata[kSeal] = seal_of(views, metadata);
  const fs::path unfinished = path.parent_path() / ("." + path.filename().string() + ".saving");
  HANJI_RETURN_IF_ERROR(base::as_error_of(path, unfinished, base::remove_tree(unfinished)));
  Status status = write_safetensors(unfinished, views, metadata);
  if (status.ok()) status = base::rename_and_sync(unfinished, path);
  if (status.ok()) return {};
  const Status removed = base::remove_tree(unfinished);
  return base::as_error_of(path, unfinished,
                           removed.ok() ? status : status.at("and " + removed.message()));
}

Status check_names(const std::vector<TensorEntry>& entries) {
  for (const TensorEntry& entry : entries) {
    if (!entry.name.starts_with(kOptimizerPrefix)) continue;
    return base::invalid_argument(fmt::format(
        "the module's tensor '{}' has a name that is kept for the optimizer; rename the submodule",
        entry.name));
  }
  return {};
}

/// Fills what lies dense in memory at once, and the rest through a copy.
Status fill(std::span<const NamedTensor> saved, std::span<const ForeignTensor> foreign,
            const std::vector<TensorEntry>& entries) {
  std::vector<TensorEntry> staged = entries;
  for (TensorEntry& entry : staged) {
    entry.tensor = entry.tensor.detach();
    const bool direct = entry.tensor.is_contiguous() && entry.tensor.device().is_cpu();
    if (!direct) entry.tensor = at::empty(entry.tensor.sizes(), entry.tensor.scalar_type());
  }
  HANJI_RETURN_IF_ERROR(copy_into(in_one_run(saved), staged, foreign));
  for (size_t i = 0; i < entries.size(); ++i) {
    const at::Tensor to = entries[i].tensor.detach();
    if (!to.is_same(staged[i].tensor) && to.data_ptr() != staged[i].tensor.data_ptr()) {
      to.copy_(staged[i].tensor);
    }
  }
  return {};
}

Result<SafetensorsFile> open(const fs::path& path) {
  HANJI_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
  HANJI_RETURN_IF_ERROR(verify(file).at(path.native()));
  return file;
}

template <class Tensor>
std::vector<Tensor> without_optimizer(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& one) { return one.name.starts_with(kOptimizerPrefix); });
  return tensors;
}

}  // namespace

Status save(const fs::path& path, const torch::nn::Module& module) {
  const auto entries = state_of(module);
  HANJI_RETURN_IF_ERROR(check_names(entries));
  return write(path, entries, {{kKind, "none"}});
}

Status save(const fs::path& path, const torch::nn::Module& module, const Optimizer& optimizer) {
  auto entries = state_of(module);
  HANJI_RETURN_IF_ERROR(check_names(entries));
  HANJI_ASSIGN_OR_RETURN(const std::string kind, internal::kind_of(optimizer));
  HANJI_ASSIGN_OR_RETURN(const auto state, internal::state_of(optimizer, module));
  entries.insert(entries.end(), state.begin(), state.end());
  return write(path, std::move(entries), {{kKind, kind}});
}

Status load(const fs::path& path, torch::nn::Module& module) {
  HANJI_ASSIGN_OR_RETURN(const SafetensorsFile file, open(path));
  return fill(without_optimizer(file.tensors()), without_optimizer(file.foreign()),
              state_of(module))
      .at(path.native());
}

Status load(const fs::path& path, torch::nn::Module& module, Optimizer& optimizer) {
  HANJI_ASSIGN_OR_RETURN(const SafetensorsFile file, open(path));
  HANJI_ASSIGN_OR_RETURN(const std::string kind, internal::kind_of(optimizer));
  const auto saved = file.metadata().find(kKind);
  if (saved == file.metadata().end() || saved->second != kind) {
    return base::mismatch(fmt::format(
        "{}: it holds the state of {} optimizer, not of {}; load the module alone, or use that one",
        path.native(),
        saved == file.metadata().end() || saved->second == "none" ? "no" : "the " + saved->second,
        kind));
  }
  auto entries = state_of(module);
  HANJI_ASSIGN_OR_RETURN(const internal::PendingState pending,
                         internal::prepare_state(optimizer, module, file));
  entries.insert(entries.end(), pending.entries.begin(), pending.entries.end());
  HANJI_RETURN_IF_ERROR(fill(file.tensors(), file.foreign(), entries).at(path.native()));
  pending.install();
  return {};
}

}  // namespace hanji::checkpoint
