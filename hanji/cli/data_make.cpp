#include "hanji/cli/data_make.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <span>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/long_verb.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/data/beton_arrays.h"
#include "hanji/data/beton_binaries.h"
#include "hanji/data/beton_folder.h"
#include "hanji/data/beton_generated.h"
#include "hanji/data/beton_table.h"
#include "hanji/data/beton_tar.h"
#include "hanji/data/beton_tokens.h"
#include "hanji/data/data_folder.h"
#include "hanji/data/text.h"
#include "hanji/data/token_file.h"
#include "hanji/data/vocabulary.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;
using data::BetonRecipe;

struct MakeOptions {
  std::string out, folder, csv, tokens, text;
  std::string vocabulary = "char";
  std::string format = "auto";
  std::vector<std::string> binaries, shards, arrays;
  data::TableOptions table;
  data::GeneratedFileOptions generated;
  int64_t length = 1024;
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
};

std::vector<fs::path> paths_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

/// Archives, and those of folders.
Result<BetonRecipe> recipe_of_shards(const MakeOptions& options) {
  std::vector<fs::path> shards;
  std::vector<std::string> notes;
  for (const fs::path& path : paths_of(options.shards)) {
    if (!fs::is_directory(path)) {
      shards.push_back(path);
      continue;
    }
    HANJI_ASSIGN_OR_RETURN(data::DataFolder found, data::list_data(path));
    data::note_metadata(notes, found.left_out);
    const auto others = std::ranges::stable_partition(
        found.files, [](const fs::path& one) { return one.extension() == ".tar"; });
    data::note_left_out(notes, {others.begin(), others.end()}, "file", " (not named .tar)");
    data::note_left_out(notes, found.others, "name", " (neither a file nor a folder)");
    data::note_left_out(notes, found.folders, "folder",
                        " (shards are looked for in the one named)");
    shards.insert(shards.end(), found.files.begin(), others.begin());
    if (others.begin() == found.files.begin()) {
      return base::invalid_argument(
          path.native() + ": no .tar file in the folder; name a folder of shards, or the shards");
    }
  }
  HANJI_ASSIGN_OR_RETURN(BetonRecipe recipe, data::tar_recipe(shards));
  recipe.notes.insert(recipe.notes.begin(), notes.begin(), notes.end());
  return recipe;
}

Result<BetonRecipe> recipe_of_arrays(const MakeOptions& options) {
  std::vector<data::NamedArray> arrays;
  for (const std::string& text : options.arrays) {
    const size_t equals = text.find('=');
    const fs::path path = equals == std::string::npos ? text : text.substr(equals + 1);
    const std::string name =
        equals == std::string::npos ? path.stem().string() : text.substr(0, equals);
    arrays.push_back({.name = name, .path = path});
  }
  return data::array_recipe(arrays);
}

Result<BetonRecipe> recipe_of_text(const MakeOptions& options) {
  HANJI_ASSIGN_OR_RETURN(const data::Text text, data::read_text(options.text));
  HANJI_ASSIGN_OR_RETURN(const auto vocabulary, options.vocabulary == "byte"
                                                    ? data::Vocabulary::bytes()
                                                    : data::Vocabulary::characters(text.bytes));
  HANJI_ASSIGN_OR_RETURN(const auto tokens, vocabulary.encode(text.bytes));
  const std::string provenance =
      fmt::format(R"({{"samples":"text","vocabulary":{}}})", vocabulary.to_json());
  HANJI_ASSIGN_OR_RETURN(BetonRecipe recipe,
                         data::token_recipe(tokens, options.length, provenance));
  recipe.notes = text.notes;
  return recipe;
}

Result<BetonRecipe> recipe_of_tokens(const MakeOptions& options) {
  HANJI_ASSIGN_OR_RETURN(const auto tokens,
                         data::open_tokens(options.tokens, *data::token_format(options.format)));
  return data::token_recipe(tokens, options.length, R"({"samples":"tokens"})");
}

/// What a file can be made of: the option that names it, and those that belong to it.
struct MakeSource {
  const char* option;
  std::vector<std::string_view> belonging;
  Result<BetonRecipe> (*recipe)(const MakeOptions&);
};

const std::vector<MakeSource>& make_sources() {
  using Options = MakeOptions;
  static const std::vector<MakeSource> sources = {
      {"--folder", {}, [](const Options& o) { return data::folder_recipe(o.folder); }},
      {"--binary", {}, [](const Options& o) { return data::binary_recipe(paths_of(o.binaries)); }},
      {"--tar", {}, recipe_of_shards},
      {"--csv",
       {"--image-column", "--class-column"},
       [](const Options& o) { return data::table_recipe(o.csv, o.table); }},
      {"--npy", {}, recipe_of_arrays},
      {"--tokens", {"--length", "--format"}, recipe_of_tokens},
      {"--text", {"--length", "--vocabulary"}, recipe_of_text},
      {"--generated", {"--size", "--classes", "--seed"}, [](const Options& o) {
         return data::generated_recipe(o.generated);
       }}};
  return sources;
}

/// The one source that was given, unless they are none or several, or an option of another was.
const MakeSource* chosen_source(Verb verb, OptionMistakes& mistakes) {
  const MakeSource* chosen = nullptr;
  bool is_one = true;
  std::string names;
  for (const MakeSource& one : make_sources()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.option);
    if (!verb.was_given(one.option)) continue;
    if (chosen) {
      is_one = false;
      mistakes.add(
          fmt::format("{} and {}: a file is made of one source", chosen->option, one.option));
    } else {
      chosen = &one;
    }
  }
  if (!chosen) mistakes.add("nothing to make; add one of " + names);
  if (!chosen || !is_one) return nullptr;
  std::set<std::string_view> others;
  for (const MakeSource& one : make_sources()) {
    for (const std::string_view option : one.belonging) {
      const bool belongs = std::ranges::count(chosen->belonging, option) > 0;
      if (belongs || !verb.was_given(std::string(option)) || !others.insert(option).second)
        continue;
      mistakes.add(
          fmt::format("{} belongs to {}; leave it out of {}", option, one.option, chosen->option));
    }
  }
  return chosen;
}

int make_file(Verb verb, const MakeOptions& options) {
  OptionMistakes mistakes;
  const MakeSource* source = chosen_source(verb, mistakes);
  if (std::error_code error; fs::exists(options.out, error)) {
    mistakes.add(options.out + ": exists; name another file with --out, or remove it");
  }
  end_at_signals(kNothingWritten);
  Result<BetonRecipe> recipe = BetonRecipe();
  if (source) recipe = source->recipe(options);
  if (!recipe.ok()) mistakes.add(recipe.status());
  mistakes.throw_if_any();
  for (const std::string& note : recipe->notes) std::cerr << "hanji: note: " << note << "\n";
  LongVerb work("samples");
  const auto made = make_samples(*recipe, options.out, options.threads, work);
  if (!made) return work.exit_code();
  std::cout << base::counted(made->num_samples, "sample") << " -> " << options.out;
  if (made->num_resumed > 0) std::cout << " (" << made->num_resumed << " of an interrupted make)";
  std::cout << "\n";
  return 0;
}

void add_sources(Verb verb, MakeOptions& options) {
  verb.add_option("--folder", &options.folder,
                  "JPEG files in a folder per class, as they are, and PNG files as raw images")
      .type_name("DIR");
  verb.add_option("--tar", &options.shards, "a shard of WebDataset, or a folder of .tar files")
      .type_name("FILE")
      .repeatable();
  verb.add_option("--csv", &options.csv, "a table; its first line names the fields")
      .type_name("FILE");
  verb.add_option("--npy", &options.arrays,
                  "an array of numpy, an element per sample; repeat per field")
      .type_name("NAME=FILE")
      .repeatable();
  verb.add_option("--tokens", &options.tokens, "token ids: nanoGPT, llm.c or Megatron")
      .type_name("FILE");
  verb.add_option("--text", &options.text, "a text, or a folder of texts, as tokens")
      .type_name("PATH");
  verb.add_option("--binary", &options.binaries,
                  "a binary file of CIFAR-10 or CIFAR-100, or of MNIST's images or labels")
      .type_name("FILE")
      .repeatable();
  verb.add_option("--generated", &options.generated.count, "images of data.images = \"generated\"")
      .type_name("N");
}

void add_belonging(Verb verb, MakeOptions& options) {
  verb.add_option("--image-column", &options.table.image_column,
                  "of --csv: paths of JPEG and PNG files, relative to the table")
      .type_name("NAME");
  verb.add_option("--class-column", &options.table.class_column, "of --csv: names that are classes")
      .type_name("NAME");
  verb.add_option("--length", &options.length,
                  "of --tokens, --text: tokens of context, and one more")
      .show_default();
  verb.add_option("--format", &options.format, "of --tokens; auto: by its first bytes and name")
      .one_of({"auto", "nanogpt", "llmc", "megatron"})
      .show_default();
  verb.add_option("--vocabulary", &options.vocabulary, "of --text")
      .one_of({"byte", "char"})
      .show_default();
  data::GeneratedFileOptions& generated = options.generated;
  verb.add_option("--size", &generated.size, "of --generated: pixels of a side").show_default();
  verb.add_option("--classes", &generated.classes,
                  "of --generated: image i has class i modulo this")
      .show_default();
  verb.add_option("--seed", &generated.seed, "of --generated: of places, colours and noise")
      .show_default();
}

}  // namespace

std::optional<data::MadeBeton> make_samples(const data::BetonRecipe& recipe, const std::string& out,
                                            int threads, LongVerb& work) {
  const auto proceed = [&](uint64_t done, uint64_t total) { return work.proceed(done, total); };
  const data::MadeBeton made =
      data::make_beton(recipe, out, {.num_threads = threads, .proceed = proceed}).or_throw();
  if (made.is_whole) return made;
  std::cerr << "hanji: interrupted at sample " << made.num_samples << " of " << recipe.num_samples
            << "; the same command continues\n";
  return std::nullopt;
}

void add_data_make(Verb data_verb) {
  const Verb verb =
      data_verb.add_verb("make", "Write a file of samples; interrupted, it continues");
  auto options = std::make_shared<MakeOptions>();
  add_sources(verb, *options);
  add_belonging(verb, *options);
  verb.add_option("--threads", &options->threads, "that read samples")
      .range(1, 1024)
      .show_default();
  verb.add_option("--out", &options->out, "to write; must not exist").type_name("FILE").required();
  verb.on_chosen([=] { return make_file(verb, *options); });
}

}  // namespace hanji::cli
