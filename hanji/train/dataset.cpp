#include "hanji/train/dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "hanji/base/log.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/beton_token_samples.h"
#include "hanji/data/generated_images.h"
#include "hanji/data/generated_pairs.h"
#include "hanji/data/page_cache.h"
#include "hanji/data/samples.h"
#include "hanji/data/text.h"
#include "hanji/data/token_file.h"
#include "hanji/plan/model_family.h"

namespace hanji::train {
namespace {

data::TokenFormat format_of(plan::TokenFormat format) {
  switch (format) {
    case plan::TokenFormat::kAuto: return data::TokenFormat::kAuto;
    case plan::TokenFormat::kNanoGpt: return data::TokenFormat::kNanoGpt;
    case plan::TokenFormat::kLlmC: return data::TokenFormat::kLlmC;
    case plan::TokenFormat::kMegatron: return data::TokenFormat::kMegatron;
  }
  return data::TokenFormat::kAuto;
}

Result<DataSource> open_token_file(const plan::DataConfig& config) {
  HANJI_ASSIGN_OR_RETURN(auto tokens, data::open_tokens(config.tokens, format_of(config.format)));
  return DataSource{std::move(tokens), std::nullopt, config.tokens};
}

Result<DataSource> encode_text(const plan::DataConfig& config) {
  data::Text read;
  std::string_view text = data::embedded_text();
  if (!config.text.empty()) {
    HANJI_ASSIGN_OR_RETURN(read, data::read_text(config.text));
    text = read.bytes;
  }
  data::Vocabulary vocabulary = data::Vocabulary::bytes();
  if (config.vocabulary == plan::VocabularyKind::kChar) {
    HANJI_ASSIGN_OR_RETURN(vocabulary, data::Vocabulary::characters(text));
  }
  HANJI_ASSIGN_OR_RETURN(auto tokens, vocabulary.encode(text));
  return DataSource{std::move(tokens), std::move(vocabulary),
                    std::string(config.text.empty() ? "embedded text" : config.text),
                    std::move(read.notes)};
}

Status too_small(int64_t vocabulary, int64_t least, std::string_view name) {
  return base::invalid_argument(
      fmt::format("model.vocabulary is {}, but {} needs {}; set model.vocabulary = \"auto\", and "
                  "the data decides",
                  vocabulary, name, least));
}

/// Whether there is something to predict.
Status check_num_ids(int64_t num_ids, const std::string& found, std::string_view way_out) {
  if (num_ids > 1) return {};
  return base::invalid_argument(
      fmt::format("{}, so that there is nothing to predict; {}", found, way_out));
}

/// One token is too few for a sample, which is said elsewhere.
Status check_ids(const DataSource& source, int64_t num_ids) {
  if (source.tokens.num_tokens() < 2) return {};
  const std::string all = base::counted(source.tokens.num_tokens(), "character");
  if (!source.vocabulary) {
    return check_num_ids(num_ids, source.name + " holds no token but 0",
                         "name another file, or set model.vocabulary");
  }
  const std::array<int64_t, 1> first{0};
  return check_num_ids(num_ids,
                       fmt::format("{} is {}, each of them {}", source.name, all,
                                   base::json_quote(source.vocabulary->decode(first))),
                       "name a text of two characters or more");
}

int64_t ids_needed(const DataSource& source) {
  return source.vocabulary ? source.vocabulary->size() : source.tokens.largest_token() + 1;
}

}  // namespace

plan::DataFacts Dataset::facts() const {
  return {.vocabulary = num_ids,
          .num_train_samples = samples->num_train(),
          .num_validation_samples = samples->num_validation(),
          .page_bytes = page_bytes};
}

Result<DataSource> open_source(const plan::DataConfig& config) {
  const bool is_text = config.tokens.empty();
  auto source = is_text ? encode_text(config) : open_token_file(config);
  if (source.ok()) return source;
  return source.status().at(is_text ? "data.text" : "data.tokens");
}

Status check_vocabulary(const DataSource& source, int64_t vocabulary, int64_t most_tokens) {
  if (vocabulary == plan::kAuto) return {};
  if (source.vocabulary) {
    const int64_t least = source.vocabulary->size();
    return vocabulary < least ? too_small(vocabulary, least, "the text's vocabulary") : Status();
  }
  if (source.tokens.check_vocabulary(vocabulary, 0, most_tokens).ok()) return {};
  return too_small(vocabulary, ids_needed(source), source.name);
}

Result<Dataset> cut_samples(DataSource source, const plan::DataConfig& config, int64_t block,
                            int64_t vocabulary) {
  const int64_t num_ids = vocabulary == plan::kAuto ? ids_needed(source) : vocabulary;
  HANJI_RETURN_IF_ERROR(check_ids(source, num_ids));
  HANJI_ASSIGN_OR_RETURN(
      auto samples, data::TokenSamples::create(std::move(source.tokens),
                                               {.block = block,
                                                .validation_fraction = config.validation_fraction,
                                                .vocabulary = num_ids}));
  const auto tokens = std::make_shared<const data::TokenSamples>(std::move(samples));
  Dataset dataset{tokens, tokens, std::move(source.vocabulary), num_ids, std::move(source.name)};
  dataset.notes = std::move(source.notes);
  return dataset;
}

Result<Dataset> open_dataset(const plan::DataConfig& config, int64_t block, int64_t vocabulary) {
  HANJI_ASSIGN_OR_RETURN(auto source, open_source(config));
  if (source.vocabulary) HANJI_RETURN_IF_ERROR(check_vocabulary(source, vocabulary));
  return cut_samples(std::move(source), config, block, vocabulary);
}

namespace {

Result<Dataset> open_image_file(const plan::Config& config) {
  const plan::DataConfig& data = config.data;
  HANJI_ASSIGN_OR_RETURN(const plan::ImageStages stages, plan::parse_image_stages(data.stage));
  HANJI_ASSIGN_OR_RETURN(auto file, data::BetonFile::open(data.files));
  const bool is_cached = data.cache == plan::FileCache::kProcess;
  const auto page_bytes = static_cast<int64_t>(is_cached ? file.sections().page_bytes : 0);
  const auto skips = std::make_shared<SkipLog>(base::Log(STDERR_FILENO, "data.corrupt = skip:"));
  auto images = data::BetonImages::create(
      std::move(file), {.stages = stages,
                        .size = data.image_size,
                        .seed = static_cast<uint64_t>(config.train.seed),
                        .validation_fraction = data.validation_fraction,
                        .corrupt = data.corrupt,
                        .cached_pages = is_cached ? data.pages : 0,
                        .report_skipped = [skips](const Status& one) { skips->add(one); }});
  if (!images.ok()) return images.status().at(data.files);
  const int64_t classes = images->num_classes();
  HANJI_RETURN_IF_ERROR(check_num_ids(classes,
                                      data.files + ": all of its labels are 0, which is one class",
                                      "name a file of two classes or more"));
  auto cache = images->cache();
  std::shared_ptr<const std::vector<double>> weights;
  if (!data.weights.empty()) {
    auto read = images->weights(data.weights);
    if (!read.ok()) return read.status().at(data.files + ": data.weights");
    weights = std::make_shared<const std::vector<double>>(*std::move(read));
  }
  return Dataset{.samples = std::make_shared<const data::BetonImages>(*std::move(images)),
                 .tokens = nullptr,
                 .vocabulary = std::nullopt,
                 .num_ids = classes,
                 .name = data.files,
                 .weights = std::move(weights),
                 .cache = std::move(cache),
                 .page_bytes = page_bytes,
                 .skips = skips};
}

}  // namespace

Result<Dataset> open_images(const plan::Config& config) {
  if (!config.data.files.empty()) return open_image_file(config);
  const plan::DataConfig& data = config.data;
  auto images = data::GeneratedImages::create({.seed = static_cast<uint64_t>(config.train.seed),
                                               .size = data.image_size,
                                               .classes = data.classes,
                                               .count = data.image_count,
                                               .validation_fraction = data.validation_fraction});
  if (!images.ok()) return images.status().at("data.images");
  return Dataset{.samples = std::make_shared<const data::GeneratedImages>(*std::move(images)),
                 .tokens = nullptr,
                 .vocabulary = std::nullopt,
                 .num_ids = data.classes,
                 .name = "generated images"};
}

Result<Dataset> open_pairs(const plan::Config& config) {
  const plan::DataConfig& data = config.data;
  auto pairs = data::GeneratedPairs::create({.seed = static_cast<uint64_t>(config.train.seed),
                                             .task = data.pairs,
                                             .residues = data.residues,
                                             .sequences = data.sequences,
                                             .count = data.systems,
                                             .validation_fraction = data.validation_fraction});
  if (!pairs.ok()) return pairs.status().at("data.pairs");
  const int64_t classes = pairs->classes();
  return Dataset{.samples = std::make_shared<const data::GeneratedPairs>(*std::move(pairs)),
                 .tokens = nullptr,
                 .vocabulary = std::nullopt,
                 .num_ids = classes,
                 .name = "generated pairs"};
}

data::LoaderOptions loader_options(const plan::Config& config, const Dataset& dataset) {
  data::LoaderOptions options{.seed = static_cast<uint64_t>(config.train.seed),
                              .num_samples = dataset.samples->num_train(),
                              .global_batch = config.train.global_batch,
                              .share = {0, config.train.global_batch},
                              .micro_batch = config.train.global_batch,
                              .order = config.data.order,
                              .epoch_end = config.data.epoch_end,
                              .open_pages = config.data.pages,
                              .weights = dataset.weights};
  if (options.order == plan::SampleOrder::kQuasi) {
    options.pages = std::make_shared<const std::vector<uint32_t>>(dataset.samples->train_pages());
  }
  return options;
}

data::Loader make_loader(const plan::Plan& plan, const Dataset& dataset, layout::Range share) {
  data::LoaderOptions options = loader_options(plan.config, dataset);
  options.share = share;
  options.micro_batch = plan.micro_batch;
  return data::Loader::create(options).or_throw();
}

Status check_order(const plan::Config& config, const Dataset& dataset) {
  HANJI_ASSIGN_OR_RETURN(const data::Loader loader,
                         data::Loader::create(loader_options(config, dataset)));
  if (!dataset.cache) return {};
  const plan::DataConfig& data = config.data;
  const int64_t ahead = data.workers == 0 ? 0 : data.prefetch == plan::kAuto ? 1 : data.prefetch;
  return data::check_page_budget(loader, dataset.samples->train_pages(),
                                 {.most_pages = data.pages, .steps_ahead = ahead},
                                 {0, config.train.steps});
}

Result<Dataset> open_token_samples(const plan::Config& config) {
  const plan::DataConfig& data = config.data;
  HANJI_ASSIGN_OR_RETURN(auto file, data::BetonFile::open(data.files));
  const bool is_cached = data.cache == plan::FileCache::kProcess;
  const auto page_bytes = static_cast<int64_t>(is_cached ? file.sections().page_bytes : 0);
  auto samples = data::BetonTokenSamples::create(std::move(file),
                                                 {.block = plan::resolved(config.model).block,
                                                  .validation_fraction = data.validation_fraction,
                                                  .vocabulary = config.model.vocabulary},
                                                 is_cached ? data.pages : 0);
  if (!samples.ok()) return samples.status().at(data.files);
  auto cache = samples->cache();
  const int64_t vocabulary = config.model.vocabulary;
  const int64_t num_ids = vocabulary == plan::kAuto ? samples->largest_token() + 1 : vocabulary;
  HANJI_RETURN_IF_ERROR(check_num_ids(num_ids, data.files + " holds no token but 0",
                                      "name another file, or set model.vocabulary"));
  return Dataset{.samples = std::make_shared<const data::BetonTokenSamples>(*std::move(samples)),
                 .tokens = nullptr,
                 .vocabulary = std::nullopt,
                 .num_ids = num_ids,
                 .name = data.files,
                 .cache = std::move(cache),
                 .page_bytes = page_bytes};
}

Status own_data(const plan::Config& config) {
  return base::unsupported(
      fmt::format("model.preset = {} learns from a program's own source, with which only that "
                  "program can begin: start it, whose hanji::train_model() trains the model",
                  config.model.preset));
}

Result<Dataset> open_dataset(const plan::Config& config) {
  switch (plan::data_kind(config)) {
    case plan::DataKind::kTokens:
      if (config.data.files.empty()) break;
      return open_token_samples(config);
    case plan::DataKind::kImages: return open_images(config);
    case plan::DataKind::kPairs: return open_pairs(config);
    case plan::DataKind::kOwn: return own_data(config);
  }
  return open_dataset(config.data, plan::resolved(config.model).block, config.model.vocabulary);
}

}  // namespace hanji::train
