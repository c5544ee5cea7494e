#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/cli/data_text.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/data/beton_binaries.h"
#include "hanji/data/beton_folder.h"
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
  std::string folder;
  std::vector<std::string> binaries;
  data::GeneratedFileOptions generated;
};

/// One line on a terminal, rewritten every 200 ms: how many, at which rate, for how long still.
class ProgressLine {
 public:
  void show(int64_t done, int64_t total) {
    const int64_t now = base::now_ns();
    if (!is_terminal_ || (now - shown_ < 200'000'000 && done < total)) return;
    shown_ = now;
    const double seconds = static_cast<double>(now - begin_) * 1e-9;
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-9);
    const double left = static_cast<double>(total - done) / rate;
    std::cerr << "\r\033[K" << done << " of " << total << " images, "
              << base::format_count(static_cast<int64_t>(rate)) << "/s, "
              << base::format_seconds(left) << " left" << (done == total ? "\n" : "");
  }

 private:
  bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  int64_t begin_ = base::now_ns();
  int64_t shown_ = 0;
};

/// Returns the number of images.
int64_t write_images(const MakeOptions& options) {
  if (!options.binaries.empty()) {
    const std::vector<std::filesystem::path> files(options.binaries.begin(),
                                                   options.binaries.end());
    return data::write_binary_images(files, options.out).or_throw();
  }
  if (!options.folder.empty()) {
    ProgressLine line;
    const auto progress = [&](int64_t done, int64_t total) { line.show(done, total); };
    return data::write_image_folder(options.folder, options.out, progress).or_throw().num_images;
  }
  base::throw_if_error(data::write_generated_file(options.out, options.generated));
  return options.generated.count;
}

int make_file(const MakeOptions& options) {
  const int64_t count = write_images(options);
  std::cout << count << " images -> " << options.out << "\n";
  return 0;
}

void add_make(Verb data_verb) {
  const Verb verb = data_verb.add_verb("make", "Write a labelled set of images");
  auto options = std::make_shared<MakeOptions>();
  data::GeneratedFileOptions& generated = options->generated;
  const Option folder = verb.add_option("--folder", &options->folder,
                                        "JPEG files in a folder per class, as they are");
  folder.type_name("DIR");
  const Option binaries =
      verb.add_option("--binary", &options->binaries,
                      "a binary file of CIFAR-10 or CIFAR-100, or of MNIST's images or labels");
  binaries.type_name("FILE").repeatable().excludes(folder);
  verb.add_option("--generated", &generated.count, "images of data.images = \"generated\"")
      .type_name("N")
      .excludes(folder)
      .excludes(binaries);
  const auto of_generated = [&](Option option) {
    option.show_default().excludes(folder).excludes(binaries);
  };
  of_generated(verb.add_option("--size", &generated.size, "pixels of a side"));
  of_generated(verb.add_option("--classes", &generated.classes, "image i has class i modulo this"));
  of_generated(verb.add_option("--seed", &generated.seed, "of places, colours and noise"));
  verb.add_option("--out", &options->out, "to write; must not exist").type_name("FILE").required();
  verb.on_chosen([=] {
    const auto is_given = [&](const char* source) { return verb.was_given(source); };
    if (!is_given("--folder") && !is_given("--binary") && !is_given("--generated")) {
      throw Error(base::invalid_argument(
          "nothing to make; add --folder DIR, --binary FILE or --generated N"));
    }
    return make_file(*options);
  });
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
