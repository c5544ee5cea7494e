#include <iostream>

#include "hanji/cli/data_text.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/data/beton_generated.h"

namespace hanji::cli {
namespace {

struct DataOptions {
  std::string path;
  bool as_json = false;
};

int show_info(const DataOptions& options) {
  const auto file = data::BetonFile::open(options.path).or_throw();
  std::cout << (options.as_json ? beton_info_json(options.path, file)
                                : beton_info_text(options.path, file));
  return 0;
}

/// A file that cannot be opened because it is damaged has one mistake.
int verify_file(const DataOptions& options) {
  std::vector<data::BetonMistake> mistakes;
  auto file = data::BetonFile::open(options.path);
  if (!file.ok() && file.status().code() != Code::kCorrupt) base::throw_if_error(file.status());
  if (file.ok()) {
    file->verify([&](const data::BetonMistake& mistake) { mistakes.push_back(mistake); });
  } else {
    mistakes.push_back({.page = {}, .sample = {}, .message = file.status().message()});
  }
  const data::BetonFile* opened = file.ok() ? &*file : nullptr;
  std::cout << (options.as_json ? beton_mistakes_json(options.path, opened, mistakes)
                                : beton_mistakes_text(options.path, opened, mistakes));
  return mistakes.empty() ? 0 : exit_code(Code::kCorrupt);
}

struct MakeOptions {
  std::string out;
  data::GeneratedFileOptions generated;
};

int make_file(const MakeOptions& options) {
  base::throw_if_error(data::write_generated_file(options.out, options.generated));
  std::cout << options.generated.count << " images -> " << options.out << "\n";
  return 0;
}

void add_make(Verb data_verb) {
  const Verb verb = data_verb.add_verb("make", "Write a labelled set of generated images");
  auto options = std::make_shared<MakeOptions>();
  data::GeneratedFileOptions& generated = options->generated;
  verb.add_option("--generated", &generated.count, "images of data.images = \"generated\"")
      .type_name("N")
      .required();
  verb.add_option("--size", &generated.size, "pixels of a side").show_default();
  verb.add_option("--classes", &generated.classes, "image i has class i modulo this")
      .show_default();
  verb.add_option("--seed", &generated.seed, "of places, colours and noise").show_default();
  verb.add_option("--out", &options->out, "to write; must not exist").type_name("FILE").required();
  verb.on_chosen([=] { return make_file(*options); });
}

}  // namespace

void add_data(Verb command) {
  const Verb verb = command.add_verb("data", "Make, inspect and verify .beton files of samples");
  verb.require_verb();
  add_make(verb);
  auto options = std::make_shared<DataOptions>();
  const auto add = [&](const char* name, const char* doc, int (*act)(const DataOptions&)) {
    const Verb sub = verb.add_verb(name, doc);
    sub.add_option("file", &options->path, "a .beton file").type_name("FILE").required();
    sub.add_flag("--json", &options->as_json, "for programs");
    sub.on_chosen([=] { return act(*options); });
  };
  add("info", "Fields, sections and pages", show_info);
  add("verify", "Read all of it: checksums, bounds; exit code 3 if something is wrong",
      verify_file);
}

}  // namespace hanji::cli
