#include <fmt/format.h>

#include <iostream>

#include "hanji/checkpoint/export.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/cli/ckpt_text.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

struct CkptOptions {
  std::string path;
  std::string other;
  std::vector<std::string> tensors;
  bool as_json = false;
};

fs::path folder_of(const fs::path& path) {
  return fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
}

/// Every checkpoint of a run, of a folder of checkpoints, or the one that is named.
std::vector<Inspected> inspect(const fs::path& path) {
  if (fs::exists(path / checkpoint::kManifestFile)) {
    return {{path.filename().string(), false, checkpoint::open_checkpoint(path)}};
  }
  const fs::path folder = folder_of(path);
  const int64_t latest = checkpoint::latest_step(folder);
  std::vector<Inspected> all;
  for (const auto& entry : checkpoint::list_checkpoints(folder).or_throw()) {
    all.push_back({entry.path.filename().string(), entry.step == latest,
                   checkpoint::open_checkpoint(entry.path)});
  }
  if (all.empty()) {
    throw Error(base::not_found(path.string() + ": no checkpoint lies here; name the folder of a "
                                                "run, or one of its checkpoints"));
  }
  return all;
}

int list(const CkptOptions& options) {
  const auto all = inspect(options.path);
  print_text(options.as_json ? list_json(all) : list_text(all, output_columns()), options.as_json);
  return 0;
}

/// As list(), but a damaged checkpoint is a failure.
int verify(const CkptOptions& options) {
  const auto all = inspect(options.path);
  print_text(options.as_json ? list_json(all) : list_text(all, output_columns()), options.as_json);
  for (const Inspected& one : all) {
    if (!one.content.ok()) return exit_code(Code::kCorrupt);
  }
  return 0;
}

checkpoint::Checkpoint load(const std::string& path) {
  auto found = checkpoint::load_checkpoint(path).or_throw();
  notify_unusable(found.refused);
  return found;
}

bool is_file(const std::string& path) { return fs::is_regular_file(path); }

int show(const CkptOptions& options) {
  if (is_file(options.path)) {
    const auto file = checkpoint::SafetensorsFile::open(options.path).or_throw();
    print_text(options.as_json ? show_file_json(options.path, file)
                               : show_file_text(options.path, file, output_columns()),
               options.as_json);
    return 0;
  }
  const auto found = load(options.path);
  print_text(options.as_json ? show_json(found) : show_text(found, output_columns()),
             options.as_json);
  return 0;
}

int diff(const CkptOptions& options) {
  std::vector<checkpoint::Difference> differences;
  if (is_file(options.path) != is_file(options.other)) {
    throw Error(base::invalid_argument(
        fmt::format("{} is a file, {} is none; name two safetensors files, or two checkpoints",
                    is_file(options.path) ? options.path : options.other,
                    is_file(options.path) ? options.other : options.path)));
  }
  if (is_file(options.path)) {
    differences = checkpoint::diff(checkpoint::SafetensorsFile::open(options.path).or_throw(),
                                   checkpoint::SafetensorsFile::open(options.other).or_throw());
  } else {
    const auto first = load(options.path);
    const auto second = load(options.other);
    differences = checkpoint::diff(first.model, second.model);
    for (auto& one : checkpoint::diff(first.optimizer, second.optimizer)) {
      differences.push_back(std::move(one));
    }
  }
  std::cout << (options.as_json ? diff_json(differences) : diff_text(differences));
  return differences.empty() ? 0 : kDiffers;
}

int export_file(const CkptOptions& options) {
  const auto found = load(options.path);
  const size_t count = checkpoint::export_tensors(found, options.tensors, options.other).or_throw();
  std::cout << count << " tensors of " << found.path.string() << " -> " << options.other << "\n";
  return 0;
}

}  // namespace

void add_ckpt(Verb command) {
  const Verb verb = command.add_verb("ckpt", "List, verify, show, compare and export checkpoints");
  verb.require_verb();
  auto options = std::make_shared<CkptOptions>();
  const auto add = [&](const char* name, const char* doc, int (*act)(const CkptOptions&)) {
    const Verb sub = verb.add_verb(name, doc);
    sub.add_option("path", &options->path, "a run's folder, or one of its checkpoints")
        .type_name("DIR")
        .required();
    sub.on_chosen([=] { return act(*options); });
    return sub;
  };
  const auto json = [&](Verb sub) {
    sub.add_flag("--json", &options->as_json, "for programs");
    return sub;
  };
  json(add("list", "All checkpoints of a run, each read and verified", list));
  json(add("verify", "As list; exit code 3 if a checkpoint is damaged", verify));
  json(add("show",
           "The newest good one: step, job, hashes, tensors; or the tensors of a safetensors file",
           show));
  json(add("diff", "Tensors that differ from another's; exit code 7 if some do", diff))
      .add_option("other", &options->other, "another one, or two safetensors files")
      .type_name("DIR")
      .required();
  const Verb exported =
      add("export", "The model, or chosen tensors, as a plain safetensors file", export_file);
  exported.add_option("file", &options->other, "to write; must not exist")
      .type_name("FILE")
      .required();
  exported.add_option("--tensor", &options->tensors, "only this one; may be given again")
      .type_name("NAME")
      .repeatable();
}

}  // namespace hanji::cli
