#include "hanji/cli/data_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/long_verb.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/data/beton_file.h"
#include "hanji/data/epoch_hash.h"
#include "hanji/train/check_job.h"

namespace hanji::cli {
namespace {

constexpr int kMaxWorkers = 256, kMaxPrefetch = 64, kMaxRanks = 1024;

struct HashOptions {
  std::string config;
  std::optional<std::string> text, tokens, data, seed;
  std::vector<std::string> assignments;
  std::string ranks = "1,2,3", workers = "0,2", prefetch = "1,4";
  int64_t epochs = 1;
  bool as_json = false;
};

struct HashedWay {
  data::ReadingWay way;
  data::ReadingHashes found;
};

/// A job's data and the order of its samples.
struct HashedData {
  plan::Config config;
  train::Dataset dataset;
  data::LoaderOptions order;
};

/// "1,2,4": numbers from `least` to `most`, each once, in the order given.
std::vector<int> read_numbers(const char* option, const std::string& text, int least, int most,
                              OptionMistakes& mistakes) {
  std::vector<int> numbers;
  for (const std::string_view one : base::split(text, ',')) {
    const auto number = parse_int(std::string(one));
    if (!number || *number < least || *number > most) {
      mistakes.add(fmt::format("{} {}: '{}' is no number from {} to {}; write {} {},{}", option,
                               text, one, least, most, option, least, least + 1));
      return {};
    }
    if (std::ranges::count(numbers, *number) == 0) numbers.push_back(*number);
  }
  return numbers;
}

/// Every combination; without workers nothing is read ahead, whatever the prefetch.
std::vector<data::ReadingWay> ways_of(const HashOptions& options) {
  OptionMistakes mistakes;
  const auto ranks = read_numbers("--ranks", options.ranks, 1, kMaxRanks, mistakes);
  const auto workers = read_numbers("--workers", options.workers, 0, kMaxWorkers, mistakes);
  const auto prefetch = read_numbers("--prefetch", options.prefetch, 0, kMaxPrefetch, mistakes);
  mistakes.throw_if_any();
  std::vector<data::ReadingWay> ways;
  for (const int rank : ranks) {
    for (const int worker : workers) {
      for (const int ahead : prefetch) {
        const data::ReadingWay way{rank, worker, worker == 0 ? 0 : ahead};
        if (std::ranges::count(ways, way) == 0) ways.push_back(way);
      }
    }
  }
  return ways;
}

bool holds_images(const std::string& path) {
  const auto file = data::BetonFile::open(path);
  return file.ok() && std::ranges::count(file->fields(), data::BetonType::kRgbImage,
                                         &data::BetonField::type) > 0;
}

plan::LoadedConfig load(const HashOptions& options) {
  plan::ConfigSources sources;
  if (options.data && holds_images(*options.data)) sources.base.model.preset = "resnet-tiny";
  if (!options.config.empty()) sources.file = options.config;
  for (const std::string& one : options.assignments) sources.overrides.push_back({one});
  const auto shortcut = [&](const std::optional<std::string>& value, const std::string& key,
                            const std::string& flag) {
    if (value) sources.overrides.push_back({key + "=" + *value, flag});
  };
  shortcut(options.text, "data.text", "--text");
  shortcut(options.tokens, "data.tokens", "--tokens");
  shortcut(options.data, "data.files", "--data");
  shortcut(options.seed, "train.seed", "--seed");
  return plan::load_config(sources);
}

/// A cache serves one reading of a file: each takes its own.
void renew_cache(HashedData& data, const data::ReadingWay& way, int64_t epochs) {
  if (!data.dataset.cache) return;
  data.dataset = train::open_dataset(data.config).or_throw();
  plan::Config config = data.config;
  config.data.workers = way.workers;
  config.data.prefetch = way.prefetch;
  const auto loader = data::Loader::create(data.order).or_throw();
  config.train.steps = data::steps_of_epochs(loader, epochs);
  base::throw_if_error(train::check_order(config, data.dataset));
}

using Progress = std::function<bool(int64_t done, int64_t total)>;

/// Nothing after an interruption.
std::optional<HashedWay> hash_way(HashedData& data, const data::ReadingWay& way,
                                  const HashOptions& options, const Progress& proceed) {
  renew_cache(data, way, options.epochs);
  data::EpochHashOptions reading{.loader = data.order,
                                 .way = way,
                                 .epochs = options.epochs,
                                 .cache = data.dataset.cache.get()};
  reading.loader.micro_batch = std::max<int64_t>(0, data.config.train.micro_batch);
  reading.proceed = proceed;
  auto found = data::hash_epochs(*data.dataset.samples, reading);
  if (found.status().code() == Code::kCancelled) return std::nullopt;
  return HashedWay{way, std::move(found).or_throw()};
}

const HashedWay* first_other(const std::vector<HashedWay>& ways) {
  const auto other = std::ranges::find_if(
      ways, [&](const HashedWay& one) { return one.found.epochs != ways[0].found.epochs; });
  return other == ways.end() ? nullptr : &*other;
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string verdict(const HashedData& data, const std::vector<HashedWay>& ways) {
  if (ways.size() == 1) return "one way to read; --ranks, --workers or --prefetch name others\n";
  const HashedWay* other = first_other(ways);
  if (!other) return fmt::format("the same bytes in all {} ways to read\n", ways.size());
  const int64_t step = data::first_difference(ways[0].found, other->found);
  return fmt::format(
      "{} read other bytes than {}, first in the global batch of step {}, {} of {}; the samples "
      "depend on what reads them\n",
      to_text(other->way), to_text(ways[0].way), step,
      base::counted(data.order.global_batch, "sample"), data.dataset.name);
}

std::string order_name(const HashedData& data) {
  if (!data.config.data.weights.empty()) return "of data.weights";
  return std::string(plan::name_of(data.order.order));
}

std::string hashes_text(const HashedData& data, const std::vector<HashedWay>& ways) {
  using Align = base::TextTable::Align;
  std::vector<base::TextTable::Column> columns{
      {"ranks", Align::kRight}, {"workers", Align::kRight}, {"steps ahead", Align::kRight}};
  for (size_t epoch = 0; epoch < ways[0].found.epochs.size(); ++epoch) {
    columns.push_back({fmt::format("epoch {}", epoch), Align::kLeft});
  }
  base::TextTable table(columns);
  for (const HashedWay& one : ways) {
    std::vector<std::string> row{std::to_string(one.way.ranks), std::to_string(one.way.workers),
                                 one.way.workers == 0 ? "-" : std::to_string(one.way.prefetch)};
    for (const uint64_t hash : one.found.epochs) row.push_back(hex(hash));
    table.add(std::move(row));
  }
  return fmt::format(
             "{}: {}, global batches of {}, order {}, seed {}; XXH3-64 of the inputs and targets "
             "of all "
             "samples in the order of the run\n\n",
             data.dataset.name, base::counted(data.order.num_samples, "training sample"),
             data.order.global_batch, order_name(data), data.order.seed) +
         table.text(output_columns()) + "\n" + verdict(data, ways);
}

std::string hashes_json(const HashedData& data, const std::vector<HashedWay>& ways) {
  base::Json rows = base::Json::array();
  for (const HashedWay& one : ways) {
    base::Json epochs = base::Json::array();
    for (const uint64_t hash : one.found.epochs) epochs.push_back(hex(hash));
    rows.push_back({{"ranks", one.way.ranks},
                    {"workers", one.way.workers},
                    {"prefetch", one.way.prefetch},
                    {"samples", one.found.num_samples},
                    {"epochs", epochs}});
  }
  const HashedWay* other = first_other(ways);
  const base::Json difference =
      other ? base::Json(data::first_difference(ways[0].found, other->found)) : base::Json();
  return base::dump(base::Json{{"data", base::escape_bytes(data.dataset.name)},
                               {"samples", data.order.num_samples},
                               {"global_batch", data.order.global_batch},
                               {"order", order_name(data)},
                               {"seed", data.order.seed},
                               {"hash", "xxh3-64"},
                               {"ways", rows},
                               {"equal", other == nullptr},
                               {"first_step_that_differs", difference}},
                    1) +
         "\n";
}

int hash_data(const HashOptions& options) {
  const std::vector<data::ReadingWay> ways = ways_of(options);
  train::CheckedJob job = train::check_job(load(options), train::FolderUse::kNone);
  if (const int code = report_mistakes(job); code != 0) return code;
  HashedData data{.config = job.loaded.config, .dataset = *std::move(job.dataset), .order = {}};
  data.order = train::loader_options(data.config, data.dataset);
  LongVerb work("steps");
  std::vector<HashedWay> hashed;
  for (const data::ReadingWay& way : ways) {
    auto one = hash_way(data, way, options, [&](int64_t done, int64_t total) {
      const auto before = static_cast<int64_t>(hashed.size()) * total;
      return work.proceed(static_cast<uint64_t>(before + done),
                          ways.size() * static_cast<uint64_t>(total));
    });
    if (!one) return work.exit_code();
    hashed.push_back(*std::move(one));
  }
  print_text(options.as_json ? hashes_json(data, hashed) : hashes_text(data, hashed),
             options.as_json);
  return first_other(hashed) ? kDiffers : 0;
}

}  // namespace

void add_data_hash(Verb data_verb) {
  const Verb verb = data_verb.add_verb(
      "hash",
      "Hash the samples of each epoch as ranks read them, in several ways; 7 if they differ");
  auto options = std::make_shared<HashOptions>();
  verb.add_option("--data", &options->data, ".beton file of samples (data.files)")
      .type_name("FILE");
  verb.add_option("--text", &options->text, "text file or folder (data.text)").type_name("PATH");
  verb.add_option("--tokens", &options->tokens, "file of token ids (data.tokens)")
      .type_name("FILE");
  verb.add_option("--ranks", &options->ranks, "that share each global batch")
      .type_name("N,...")
      .show_default();
  verb.add_option("--workers", &options->workers, "threads of each rank that read besides its own")
      .type_name("N,...")
      .show_default();
  verb.add_option("--prefetch", &options->prefetch, "steps that workers read ahead")
      .type_name("N,...")
      .show_default();
  verb.add_option("--epochs", &options->epochs, "from the first on")
      .range(1, 1 << 20)
      .show_default();
  verb.add_option("--seed", &options->seed, "of order and augmentation (train.seed)")
      .type_name("N");
  verb.add_option("--config", &options->config, "TOML file of the job").type_name("FILE");
  verb.add_option("--set", &options->assignments, "any key: --set train.global_batch=64")
      .type_name("KEY=VALUE")
      .repeatable();
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.footer(
      "Each way reads as a training run does: a loader and reading threads for each rank, here in "
      "one process.\nExit code 0: the same bytes in every way; 7: they differ.");
  verb.on_chosen([=] { return hash_data(*options); });
}

}  // namespace hanji::cli
