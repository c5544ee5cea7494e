#include "hanji/checkpoint/export.h"

#include <fmt/format.h>

#include "hanji/base/file.h"
#include "hanji/base/text.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;

Status no_such_tensor(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<std::string_view> names;
  for (const SafetensorsFile* file : {&checkpoint.model, &checkpoint.optimizer}) {
    for (const NamedTensor& tensor : file->tensors()) names.push_back(tensor.name);
  }
  const auto near = base::nearest(name, names);
  return base::not_found(
      fmt::format("{}: it holds no tensor '{}'{}", checkpoint.path.native(), name,
                  near ? "; did you mean '" + *near + "'?" : "; `hanji ckpt show` lists them"));
}

}  // namespace

Result<size_t> export_tensors(const Checkpoint& checkpoint, std::span<const std::string> names,
                              const fs::path& to) {
  std::vector<NamedTensor> tensors;
  if (names.empty()) tensors = checkpoint.model.tensors();
  for (const std::string& name : names) {
    const NamedTensor* found = checkpoint.model.find(name);
    if (found == nullptr) found = checkpoint.optimizer.find(name);
    if (found == nullptr) return no_such_tensor(checkpoint, name);
    tensors.push_back(*found);
  }
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error))) {
    return base::invalid_argument(
        fmt::format("{} exists; nothing is overwritten, so name another file", to.native()));
  }
  fs::path unfinished = to;
  unfinished += ".unfinished";
  Status status = write_safetensors(unfinished, tensors, {{"format", "pt"}});
  if (status.ok()) status = base::rename_and_sync(unfinished, to);
  if (status.ok()) return tensors.size();
  const Status removed = base::remove_tree(unfinished);
  return removed.ok() ? status : status.at("and " + removed.message());
}

}  // namespace hanji::checkpoint
