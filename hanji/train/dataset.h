#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hanji/data/token_source.h"
#include "hanji/data/vocabulary.h"
#include "hanji/plan/plan.h"

namespace hanji::data {
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

/// Makes the model of a resolved configuration. Empty: models::make() does.
using MakeModel =
    std::function<std::shared_ptr<layers::Model>(const plan::Config&, const models::MakeOptions&)>;

/// What a run learns from: samples, and of texts the vocabulary that turns them back into text.
struct Dataset {
  std::shared_ptr<const data::Source> samples;
  std::shared_ptr<const data::TokenSamples> tokens;  ///< The same, where samples are tokens.
  std::optional<data::Vocabulary> vocabulary;        ///< Of a text.
  int64_t num_ids = 0;                               ///< Token ids, or classes, are below it.
  std::string name;  ///< For people: a path, "embedded text", "generated images".

  plan::DataFacts facts() const;
};

/// What a run trains on what.
struct Workload {
  Dataset dataset;
  MakeModel make = {};
};

/// The tokens that a configuration names, before they are cut into samples.
struct DataSource {
  data::TokenSource tokens;
  std::optional<data::Vocabulary> vocabulary;  ///< None for a file of token ids.
  std::string name;
};

/// Errors  as data::read_text(), data::Vocabulary and data::open_tokens().
Result<DataSource> open_source(const plan::DataConfig& config);

/// Whether a model with ids below `vocabulary` knows all tokens; plan::kAuto always does.
///
/// Cost    reads the first `most_tokens` of a token file once; nothing for a text.
/// Errors  kInvalidArgument with the least vocabulary that serves.
Status check_vocabulary(const DataSource& source, int64_t vocabulary,
                        int64_t most_tokens = int64_t{1} << 28);

/// Opens what `config` names: a text, a file of token ids, or the embedded text.
///
/// `block` is the length of a sample; `vocabulary` the model's, or plan::kAuto for what the data
/// needs (for a file of token ids this reads it once).
/// Cost    a text is held in memory once, as ids; token files are mapped.
/// Errors  as open_source() and data::TokenSamples; kInvalidArgument for a vocabulary smaller than
///         the text's. Ids of a token file are looked at when a sample is read, or before by
///         check_vocabulary().
Result<Dataset> open_dataset(const plan::DataConfig& config, int64_t block, int64_t vocabulary);
/// Draws data.images.
/// Errors  as data::GeneratedImages::create().
Result<Dataset> open_images(const plan::Config& config);

/// Why data that a program brings cannot be opened by its configuration.
Status own_data(const plan::Config& config);

/// What a run's configuration names, of any kind; a block that is open is the preset's.
/// Errors  own_data() besides.
Result<Dataset> open_dataset(const plan::Config& config);
/// The same from tokens that are open already.
Result<Dataset> cut_samples(DataSource source, const plan::DataConfig& config, int64_t block,
                            int64_t vocabulary);

}  // namespace hanji::train
