#include "hanji/checkpoint/export.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/file.h"
#include "hanji/base/text.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

Status no_such_tensor(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto* tensors : {&checkpoint.model, &checkpoint.optimizer}) {
    for (const SavedTensor& tensor : *tensors) names.push_back(tensor.name);
  }
  const auto near = base::nearest(name, names);
  return base::not_found(
      fmt::format("{}: it holds no tensor '{}'{}", checkpoint.path.native(), name,
                  near ? "; did you mean '" + *near + "'?" : "; `hanji ckpt show` lists them"));
}

const SavedTensor* find(const Checkpoint& checkpoint, const std::string& name) {
  for (const auto* tensors : {&checkpoint.model, &checkpoint.optimizer}) {
    const auto found = std::ranges::find(*tensors, name, &SavedTensor::name);
    if (found != tensors->end()) return &*found;
  }
  return nullptr;
}

Status write_plain(const fs::path& path, const std::vector<SavedTensor>& tensors) {
  std::vector<TensorForm> forms;
  for (const SavedTensor& tensor : tensors) {
    forms.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  HANJI_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(path, forms, {{"format", "pt"}}));
  for (const SavedTensor& tensor : tensors) {
    Status status;
    for_each_run(tensor, {0, tensor.num_elements()}, [&](int64_t, auto run) {
      if (status.ok()) status = writer.append(run);
    });
    HANJI_RETURN_IF_ERROR(status);
  }
  return writer.finish();
}

}  // namespace

Result<size_t> export_tensors(const Checkpoint& checkpoint, std::span<const std::string> names,
                              const fs::path& to) {
  std::vector<SavedTensor> tensors;
  if (names.empty()) tensors = checkpoint.model;
  for (const std::string& name : names) {
    const SavedTensor* found = find(checkpoint, name);
    if (found == nullptr) return no_such_tensor(checkpoint, name);
    tensors.push_back(*found);
  }
  sort_for_file(tensors);
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error))) {
    return base::invalid_argument(
        fmt::format("{} exists; nothing is overwritten, so name another file", to.native()));
  }
  const fs::path folder = to.has_parent_path() ? to.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) {
    return base::not_found(fmt::format("{}: {} is no folder; make it, or name another file",
                                       to.native(), folder.native()));
  }
  fs::path unfinished = to;
  unfinished += ".unfinished";
  Status status = write_plain(unfinished, tensors);
  if (status.ok()) status = base::rename_and_sync(unfinished, to);
  if (status.ok()) return tensors.size();
  const Status removed = base::remove_tree(unfinished);
  return (removed.ok() ? status : status.at("and " + removed.message())).at(to.native());
}

}  // namespace hanji::checkpoint
