#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hanji/data/samples.h"
#include "hanji/data/vocabulary.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// What a run learns from: samples, and the vocabulary that turns them back into text.
struct Dataset {
  data::TokenSamples samples;
  std::optional<data::Vocabulary> vocabulary;  ///< None for a file of token ids.
  int64_t num_ids = 0;                         ///< Token ids are below it.
  std::string name;                            ///< For people: a path, or "embedded text".

  plan::DataFacts facts() const;
};

/// Opens what `config` names: a text, a file of token ids, or the embedded text.
///
/// `block` is the length of a sample; `vocabulary` the model's, or plan::kAuto for what the data
/// needs (for a file of token ids this reads it once).
/// Cost    a text is held in memory once, as ids; token files are mapped.
/// Errors  as data::read_text(), data::Vocabulary, data::open_tokens() and data::TokenSamples;
///         kInvalidArgument for a vocabulary smaller than the text's.
Result<Dataset> open_dataset(const plan::DataConfig& config, int64_t block, int64_t vocabulary);

}  // namespace hanji::train
