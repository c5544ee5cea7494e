#include "hanji/train/dataset.h"

#include "hanji/data/text.h"
#include "hanji/data/token_file.h"

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

struct Source {
  data::TokenSource tokens;
  std::optional<data::Vocabulary> vocabulary;
  int64_t num_ids = 0;
  std::string name;
};

Result<Source> open_token_file(const plan::DataConfig& config, int64_t vocabulary) {
  HANJI_ASSIGN_OR_RETURN(auto tokens, data::open_tokens(config.tokens, format_of(config.format)));
  const int64_t num_ids = vocabulary == plan::kAuto ? tokens.largest_token() + 1 : vocabulary;
  return Source{std::move(tokens), std::nullopt, num_ids, config.tokens};
}

Result<Source> encode_text(const plan::DataConfig& config, int64_t num_ids) {
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
  if (num_ids == plan::kAuto) num_ids = vocabulary.size();
  if (num_ids < vocabulary.size()) {
    return base::invalid_argument("model.vocabulary = " + std::to_string(num_ids) +
                                  " is smaller than the text's vocabulary of " +
                                  std::to_string(vocabulary.size()) +
                                  "; leave it out, and the text decides");
  }
  HANJI_ASSIGN_OR_RETURN(auto tokens, vocabulary.encode(std::string(text)));
  return Source{std::move(tokens), std::move(vocabulary), num_ids,
                std::string(config.text.empty() ? "embedded text" : config.text)};
}

}  // namespace

plan::DataFacts Dataset::facts() const {
  return {.vocabulary = num_ids,
          .num_train_samples = samples.num_train(),
          .num_validation_samples = samples.num_validation()};
}

Result<Dataset> open_dataset(const plan::DataConfig& config, int64_t block, int64_t vocabulary) {
  auto source =
      config.tokens.empty() ? encode_text(config, vocabulary) : open_token_file(config, vocabulary);
  if (!source.ok()) {
    return source.status().at(config.tokens.empty() ? "data.text" : "data.tokens");
  }
  HANJI_ASSIGN_OR_RETURN(
      auto samples, data::TokenSamples::create(std::move(source->tokens),
                                               {.block = block,
                                                .validation_fraction = config.validation_fraction,
                                                .vocabulary = source->num_ids}));
  return Dataset{std::move(samples), std::move(source->vocabulary), source->num_ids,
                 std::move(source->name)};
}

}  // namespace hanji::train
