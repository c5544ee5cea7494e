#include "hanji/cli/data_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/cli/data_make.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/long_verb.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/data/bench_file.h"
#include "hanji/data/beton_convert.h"
#include "hanji/data/contact_sheet.h"
#include "hanji/data/image_files.h"

namespace hanji::cli {
namespace {

int num_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// How a job of images makes its samples: --config and --set, over resnet-tiny.
struct ImageJob {
  std::string config;
  std::vector<std::string> assignments;

  void add_to(Verb verb) {
    verb.add_option("--config", &config, "TOML file of the job").type_name("FILE");
    verb.add_option("--set", &assignments, "any key: --set \"data.stage=center_crop, normalise\"")
        .type_name("KEY=VALUE")
        .repeatable();
  }

  plan::LoadedConfig load(const std::string& file) const {
    plan::ConfigSources sources;
    sources.base.model.preset = "resnet-tiny";
    if (!config.empty()) sources.file = config;
    for (const std::string& one : assignments) sources.overrides.push_back({one});
    sources.overrides.push_back({"data.files=" + file, "file"});
    return plan::load_config(sources);
  }
};

struct ShowOptions {
  std::string file, out;
  bool is_augmented = false;
  data::SheetOptions sheet;
  ImageJob job;
};

/// A sheet takes the place of another, but of no other file, such as the one that it is of.
void check_sheet(const std::string& out) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(out, error)) return;  // writing says what else is wrong
  constexpr std::string_view kMagic = "\x89PNG";
  const auto found = base::MappedFile::open(out).or_throw();
  const std::string_view text(reinterpret_cast<const char*>(found.bytes().data()),
                              found.bytes().size());
  if (text.empty() || text.starts_with(kMagic)) return;
  throw Error(base::invalid_argument(out + ": exists and is no PNG; name another file with --out"));
}

int show_file(Verb verb, const ShowOptions& options) {
  check_sheet(options.out);
  data::SheetOptions sheet = options.sheet;
  LongVerb work("images");
  sheet.proceed = [&](int64_t done, int64_t total) {
    return work.proceed(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  Result<std::string> png = std::string();
  if (options.is_augmented) {
    const plan::LoadedConfig loaded = options.job.load(options.file);
    if (const int code = report_mistakes(loaded); code != 0) return code;
    if (!verb.was_given("--count")) sheet.count = 8;
    const data::SheetSamples samples{
        .stages = plan::parse_image_stages(loaded.config.data.stage).or_throw(),
        .size = loaded.config.data.image_size,
        .seed = static_cast<uint64_t>(loaded.config.train.seed)};
    png = data::augmented_sheet(options.file, samples, sheet);
  } else {
    if (verb.was_given("--config") || verb.was_given("--set")) {
      throw Error(base::invalid_argument("--config and --set belong to --augmented; add it"));
    }
    png = data::contact_sheet(options.file, sheet);
  }
  if (png.status().code() == Code::kCancelled) return work.exit_code();
  base::throw_if_error(base::write_file_atomic(options.out, std::move(png).or_throw()));
  std::cout << options.file << " -> " << options.out << "\n";
  return 0;
}

struct ConvertFileOptions {
  std::string file, out, folder;
  int images = 0;
  int64_t quality = 90;
  data::ConvertOptions convert;
  int threads = num_cores();
};

int convert_to_folder(const ConvertFileOptions& options) {
  LongVerb work("images");
  const auto proceed = [&](uint64_t done, uint64_t total) { return work.proceed(done, total); };
  const auto made = data::write_image_files(options.file, options.folder,
                                            {.num_threads = options.threads, .proceed = proceed})
                        .or_throw();
  if (!made.is_whole) {
    std::cerr << "hanji: interrupted at image " << made.num_samples
              << "; the same command continues\n";
    return work.exit_code();
  }
  std::cout << base::counted(made.num_samples, "image") << " -> " << options.folder << "\n";
  return 0;
}

/// Options of some ways to store images only.
struct StorageOption {
  const char* option;
  std::vector<data::ImageStorage> ways;
  const char* belongs_to;
};

const std::vector<StorageOption>& storage_options() {
  using Way = data::ImageStorage;
  static const std::vector<StorageOption> options = {
      {"--quality",
       {Way::kKeep, Way::kJpeg, Way::kProportion, Way::kSmart},
       "JPEGs, and --images raw stores none"},
      {"--row-index",
       {Way::kKeep, Way::kJpeg, Way::kProportion, Way::kSmart},
       "JPEGs, and --images raw stores none"},
      {"--jpeg-share", {Way::kProportion}, "--images proportion"},
      {"--seed", {Way::kProportion}, "--images proportion"},
      {"--smart-bytes", {Way::kSmart}, "--images smart"}};
  return options;
}

void check_convert(Verb verb, const ConvertFileOptions& options, OptionMistakes& mistakes) {
  if (options.out.empty() == options.folder.empty()) {
    mistakes.add("name one of --out FILE and --to DIR");
  }
  const std::string& made = options.folder.empty() ? options.out : options.folder;
  std::error_code error;
  if (std::filesystem::exists(made, error)) {
    mistakes.add(made + ": exists; name another with --out or --to, or remove it");
  }
  if (!options.folder.empty()) {
    for (const char* one : {"--images", "--quality", "--row-index", "--max-resolution",
                            "--jpeg-share", "--smart-bytes", "--seed"}) {
      if (!verb.was_given(one)) continue;
      mistakes.add(
          fmt::format("{} belongs to --out; images are written to a folder as they are", one));
    }
    return;
  }
  for (const StorageOption& one : storage_options()) {
    const bool takes_effect = std::ranges::count(one.ways, options.convert.images) > 0;
    if (takes_effect || !verb.was_given(one.option)) continue;
    mistakes.add(
        fmt::format("{} is of {}; leave it out, or set --images", one.option, one.belongs_to));
  }
}

int convert_file(Verb verb, ConvertFileOptions options) {
  options.convert.images = data::ImageStorage(options.images);
  if (verb.was_given("--quality")) options.convert.quality = static_cast<int>(options.quality);
  OptionMistakes mistakes;
  check_convert(verb, options, mistakes);
  end_at_signals(kNothingWritten);
  Result<data::BetonRecipe> recipe = data::BetonRecipe();
  if (options.folder.empty()) recipe = data::converted_recipe(options.file, options.convert);
  if (!recipe.ok()) mistakes.add(recipe.status());
  mistakes.throw_if_any();
  if (!options.folder.empty()) return convert_to_folder(options);
  LongVerb work("samples");
  const auto made = make_samples(*recipe, options.out, options.threads, work);
  if (!made) return work.exit_code();
  std::cout << base::counted(made->num_samples, "sample") << " -> " << options.out << "\n";
  return 0;
}

struct BenchDataOptions {
  std::string file;
  bool as_json = false;
  int64_t batch = 64;
  int threads = num_cores();
  ImageJob job;
};

std::string rate_row(const std::string& name, const std::optional<double>& rate) {
  if (!rate) return "";
  return fmt::format("{:<44}{:>10}\n", name, base::format_count(static_cast<int64_t>(*rate)));
}

std::string rates_text(const std::string& file, const data::FileRates& rates) {
  const auto bytes = static_cast<int64_t>(rates.sample_bytes);
  std::string text =
      fmt::format("{}: {} of {}; samples per second, warm unless said\n\n", file,
                  base::counted(rates.num_samples, "sample"), base::format_bytes(bytes));
  text += fmt::format("{:<44}{:>10}  {}/s\n", "read all bytes, in memory, 1 thread",
                      base::format_count(static_cast<int64_t>(rates.read)),
                      base::format_bytes(static_cast<int64_t>(rates.read * rates.sample_bytes)));
  text += rate_row("libjpeg-turbo, whole images, 1 thread", rates.decoded);
  text += rate_row("decode the part of the crop, 1 thread", rates.cropped);
  text += rate_row("make a sample, 1 thread", rates.made);
  for (const plan::SamplePart& part : rates.parts) {
    text += fmt::format("  {:<42}{:>8.0f} %\n", part.name, 100 * *rates.made * part.seconds);
  }
  text += rate_row(fmt::format("load batches, {}", base::counted(rates.threads, "thread")),
                   rates.loaded);
  text += rate_row(fmt::format("load batches, {}, cold", base::counted(rates.threads, "thread")),
                   rates.cold_loaded);
  text += rate_row("read from the disk past the kernel's cache", rates.cold_read);
  if (!rates.why_not_cold.empty()) text += "cold: not measured: " + rates.why_not_cold + "\n";
  if (const auto times = rates.times_decode()) {
    text +=
        fmt::format("\nThe loader is {:.2f} times libjpeg-turbo's decode by one thread.\n", *times);
  }
  return text + fmt::format("\nbound by {}\n", rates.bottleneck());
}

std::string rates_json(const std::string& file, const data::FileRates& rates) {
  const auto number = [](const std::optional<double>& rate) {
    return rate ? base::Json(*rate) : base::Json();
  };
  base::Json parts = base::Json::array();
  for (const plan::SamplePart& part : rates.parts) {
    parts.push_back({{"name", part.name}, {"seconds", part.seconds}});
  }
  const base::Json json = {{"file", file},
                           {"samples", rates.num_samples},
                           {"sample_bytes", rates.sample_bytes},
                           {"threads", rates.threads},
                           {"per_second",
                            {{"read", rates.read},
                             {"decoded", number(rates.decoded)},
                             {"cropped", number(rates.cropped)},
                             {"made", number(rates.made)},
                             {"loaded", number(rates.loaded)},
                             {"cold_loaded", number(rates.cold_loaded)},
                             {"cold_read", number(rates.cold_read)}}},
                           {"part_seconds", parts},
                           {"why_not_cold", rates.why_not_cold},
                           {"times_decode", number(rates.times_decode())},
                           {"bottleneck", rates.bottleneck()}};
  return base::dump(json, 1) + "\n";
}

int bench_data(const BenchDataOptions& options) {
  const plan::LoadedConfig loaded = options.job.load(options.file);
  if (const int code = report_mistakes(loaded); code != 0) return code;
  LongVerb work("timings");
  const auto proceed = [&](int64_t done, int64_t total) {
    return work.proceed(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  const auto rates = data::bench_file(
      options.file, {.stages = plan::parse_image_stages(loaded.config.data.stage).or_throw(),
                     .size = loaded.config.data.image_size,
                     .batch = options.batch,
                     .threads = options.threads,
                     .proceed = proceed});
  if (rates.status().code() == Code::kCancelled) return work.exit_code();
  base::throw_if_error(rates.status());
  std::cout << (options.as_json ? rates_json(options.file, *rates)
                                : rates_text(options.file, *rates));
  return 0;
}

}  // namespace

void add_data_show(Verb data_verb) {
  const Verb verb = data_verb.add_verb("show", "Write a sheet of a file's images as PNG");
  auto options = std::make_shared<ShowOptions>();
  verb.add_option("file", &options->file, "a .beton file").type_name("FILE").required();
  verb.add_option("--out", &options->out, "to write; may replace a PNG, and no other file")
      .type_name("PNG")
      .required();
  verb.add_option("--count", &options->sheet.count, "images; with --augmented rows, 8 by default")
      .show_default();
  verb.add_option("--columns", &options->sheet.columns, "images beside each other").show_default();
  verb.add_option("--cell", &options->sheet.cell, "pixels of a side").show_default();
  verb.add_flag("--augmented", &options->is_augmented,
                "each image, and what the model sees of it in epochs 0, 1, ...");
  options->job.add_to(verb);
  verb.on_chosen([=] { return show_file(verb, *options); });
}

void add_data_convert(Verb data_verb) {
  const Verb verb = data_verb.add_verb("convert", "Store images in another way, or as files");
  auto options = std::make_shared<ConvertFileOptions>();
  data::ConvertOptions& convert = options->convert;
  verb.add_option("file", &options->file, "a .beton file").type_name("FILE").required();
  verb.add_option("--out", &options->out, "a .beton file to write; must not exist")
      .type_name("FILE");
  verb.add_option("--to", &options->folder, "a folder of image files to write; must not exist")
      .type_name("DIR");
  verb.add_option("--images", &options->images,
                  "keep, raw, jpg, proportion (a share as jpg), smart (large ones as jpg)")
      .translate({{"keep", 0}, {"raw", 1}, {"jpg", 2}, {"proportion", 3}, {"smart", 4}})
      .type_name("HOW");
  verb.add_option("--quality", &options->quality,
                  "of JPEGs, 1 to 100; given, those of the file are encoded anew; raw ones get 90")
      .type_name("N")
      .range(1, 100);
  verb.add_option("--max-resolution", &convert.max_resolution,
                  "pixels of the longer side: larger images shrink")
      .type_name("N")
      .range(1, 65500);
  verb.add_flag("--row-index", &convert.row_index,
                "JPEGs get an index of their rows: those above a crop are not decoded");
  verb.add_option("--jpeg-share", &convert.jpeg_share, "of proportion").show_default();
  verb.add_option("--smart-bytes", &convert.smart_bytes, "of smart: raw images of more become jpg")
      .show_default();
  verb.add_option("--seed", &convert.seed, "of proportion").show_default();
  verb.add_option("--threads", &options->threads, "that convert").range(1, 1024).show_default();
  verb.on_chosen([=] { return convert_file(verb, *options); });
}

void add_data_bench(Verb data_verb) {
  const Verb verb =
      data_verb.add_verb("bench", "Time the parts of a file's loader on this machine");
  auto options = std::make_shared<BenchDataOptions>();
  verb.add_option("file", &options->file, "a .beton file").type_name("FILE").required();
  verb.add_option("--batch", &options->batch, "samples of a step").range(1, 1 << 24).show_default();
  verb.add_option("--threads", &options->threads, "that load").range(1, 1024).show_default();
  verb.add_flag("--json", &options->as_json, "for programs");
  options->job.add_to(verb);
  verb.on_chosen([=] { return bench_data(*options); });
}

}  // namespace hanji::cli
