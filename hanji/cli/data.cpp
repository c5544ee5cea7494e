#include <fmt/format.h>

#include <iostream>

#include "hanji/cli/data_hash.h"
#include "hanji/cli/data_images.h"
#include "hanji/cli/data_make.h"
#include "hanji/cli/data_text.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/long_verb.h"
#include "hanji/cli/verbs.h"
#include "hanji/data/beton_file.h"

namespace hanji::cli {
namespace {

struct DataOptions {
  std::string path;
  bool as_json = false;
  uint64_t first_page = 0;
};

int show_info(const DataOptions& options) {
  const auto file = data::BetonFile::open(options.path).or_throw();
  std::cout << (options.as_json ? beton_info_json(options.path, file)
                                : beton_info_text(options.path, file));
  return 0;
}

/// A file that cannot be opened because it is damaged has one mistake.
int verify_file(const DataOptions& options) {
  LongVerb work("pages");
  uint64_t num_pages = options.first_page;
  const auto proceed = [&](uint64_t done, uint64_t total) {
    num_pages = done;
    return work.proceed(done, total);
  };
  std::vector<data::BetonMistake> mistakes;
  auto file = data::BetonFile::open(options.path);
  if (!file.ok() && file.status().code() != Code::kCorrupt) base::throw_if_error(file.status());
  if (file.ok() && options.first_page > 0 && options.first_page >= file->sections().num_pages) {
    throw Error(base::invalid_argument(
        fmt::format("--from-page is {}, but {} has pages 0 to {}; leave it out to read all",
                    options.first_page, options.path, file->sections().num_pages - 1)));
  }
  if (file.ok()) {
    file->verify([&](const data::BetonMistake& mistake) { mistakes.push_back(mistake); },
                 {.first_page = options.first_page, .proceed = proceed});
  } else {
    mistakes.push_back({.page = {}, .sample = {}, .message = file.status().message()});
  }
  const data::BetonFile* opened = file.ok() ? &*file : nullptr;
  const bool is_interrupted = work.exit_code() != 0;
  if (!is_interrupted || !mistakes.empty()) {
    std::cout << (options.as_json ? beton_mistakes_json(options.path, opened, mistakes)
                                  : beton_mistakes_text(options.path, opened, mistakes));
  }
  if (options.first_page > 0) {
    std::cerr << "hanji: pages before " << options.first_page << " were not read\n";
  }
  if (!is_interrupted) return mistakes.empty() ? 0 : exit_code(Code::kCorrupt);
  std::cerr << "hanji: interrupted; --from-page " << num_pages << " continues\n";
  return work.exit_code();
}

}  // namespace

void add_data(Verb command) {
  const Verb verb = command.add_verb(
      "data", "Make, show, convert, verify and time .beton files; hash what ranks read");
  verb.require_verb();
  add_data_make(verb);
  add_data_show(verb);
  add_data_convert(verb);
  add_data_bench(verb);
  add_data_hash(verb);
  auto options = std::make_shared<DataOptions>();
  const auto add = [&](const char* name, const char* doc, int (*act)(const DataOptions&)) {
    const Verb sub = verb.add_verb(name, doc);
    sub.add_option("file", &options->path, "a .beton file").type_name("FILE").required();
    sub.add_flag("--json", &options->as_json, "for programs");
    sub.on_chosen([=] { return act(*options); });
    return sub;
  };
  add("info", "Fields, sections and pages", show_info);
  const Verb verify =
      add("verify", "Read all of it: checksums, bounds; exit code 3 if something is wrong",
          verify_file);
  verify.add_option("--from-page", &options->first_page, "take the pages before it for good")
      .type_name("N")
      .range(uint64_t{0}, uint64_t{1} << 32);
}

}  // namespace hanji::cli
