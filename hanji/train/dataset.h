#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hanji/data/loader.h"
#include "hanji/data/token_source.h"
#include "hanji/data/vocabulary.h"
#include "hanji/plan/plan.h"
#include "hanji/train/skip_log.h"

namespace hanji::data {
class PageCache;
class Source;
class TokenSamples;
}  // namespace hanji::data
namespace hanji::layers {
class Model;
}
namespace hanji::models {
struct MakeOptions;
}

namespace hanji::train {

/// Makes the model of a resolved configuration. Empty: models::make().
using MakeModel =
    std::function<std::shared_ptr<layers::Model>(const plan::Config&, const models::MakeOptions&)>;

/// The training data of a run: samples, and for texts the vocabulary.
struct Dataset {
  std::shared_ptr<const data::Source> samples;
  std::shared_ptr<const data::TokenSamples> tokens;  ///< The same, if samples are tokens.
  std::optional<data::Vocabulary> vocabulary;        ///< Of a text.
  int64_t num_ids = 0;                               ///< Token ids, or classes, are less than it.
  std::string name;  ///< For output: a path, "embedded text", "generated images".
  std::shared_ptr<const std::vector<double>> weights =
      {};                                       ///< Of training samples, if data.weights.
  std::shared_ptr<data::PageCache> cache = {};  ///< Of samples, if data.cache = process.
  int64_t page_bytes = 0;                       ///< Of the cache.
  std::shared_ptr<SkipLog> skips = {};          ///< Of samples, where some may be skipped.
  std::vector<std::string> notes = {};          ///< What of a text was left out, a sentence each.

  plan::DataFacts facts() const;
};

/// The model and the data of a run.
struct Workload {
  Dataset dataset;
  MakeModel make = {};
};

/// The tokens that a configuration names, before they are cut into samples.
struct DataSource {
  data::TokenSource tokens;
  std::optional<data::Vocabulary> vocabulary;  ///< None for a file of token ids.
  std::string name;
  std::vector<std::string> notes = {};  ///< The notes of Dataset.
};

/// Errors  as data::read_text(), data::Vocabulary and data::open_tokens().
Result<DataSource> open_source(const plan::DataConfig& config);

/// Checks that all token ids are less than `vocabulary`; plan::kAuto accepts all.
///
/// Cost    reads the first `most_tokens` of a token file once; nothing for a text.
/// Errors  kInvalidArgument with the smallest sufficient vocabulary.
Status check_vocabulary(const DataSource& source, int64_t vocabulary,
                        int64_t most_tokens = int64_t{1} << 28);

/// Opens the data of `config`: a text, a file of token ids, or the embedded text.
///
/// `block` is the length of a sample; `vocabulary` that of the model, or plan::kAuto for the
/// smallest one (which reads a file of token ids once).
/// Cost    a text is stored in memory once, as ids; token files are mapped.
/// Errors  as open_source() and data::TokenSamples; kInvalidArgument for a vocabulary smaller than
///         the text's. Ids of a token file are checked when a sample is read, or before by
///         check_vocabulary().
Result<Dataset> open_dataset(const plan::DataConfig& config, int64_t block, int64_t vocabulary);
/// Makes the pairs of data.pairs. Errors  as data::GeneratedPairs.
Result<Dataset> open_pairs(const plan::Config& config);
/// Opens data.files, or makes the generated images of data.images.
/// Errors  as data::BetonFile, data::BetonImages, data::GeneratedImages; kInvalidArgument for a file of one class.
Result<Dataset> open_images(const plan::Config& config);

/// Opens data.files for a model of tokens. Errors  as data::BetonFile, data::BetonTokenSamples.
Result<Dataset> open_token_samples(const plan::Config& config);

/// The order of the configuration's training samples, for a loader with the whole global batch as its share.
data::LoaderOptions loader_options(const plan::Config& config, const Dataset& dataset);
/// The loader of a rank: its share of the training samples, in the order of the configuration.
data::Loader make_loader(const plan::Plan& plan, const Dataset& dataset, layout::Range share);
/// Errors  as data::Loader::create() of the configuration's global batch, and data::check_page_budget().
Status check_order(const plan::Config& config, const Dataset& dataset);

/// The error for the configuration of a program's own data, which no key names.
Status own_data(const plan::Config& config);

/// Opens the data of a configuration, of any kind; the default of model.block is the preset's.
/// Errors  as the functions above, and own_data().
Result<Dataset> open_dataset(const plan::Config& config);
/// The same for open tokens. Errors  kInvalidArgument for tokens that are all 0, unless `vocabulary` is set.
Result<Dataset> cut_samples(DataSource source, const plan::DataConfig& config, int64_t block,
                            int64_t vocabulary);

}  // namespace hanji::train
