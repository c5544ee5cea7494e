#include "hanji/data/samples.h"

#include <fmt/format.h>

#include <cmath>

namespace hanji::data {
namespace {

Status check_options(const SampleOptions& options) {
  if (options.block < 1) {
    return base::invalid_argument(
        fmt::format("model.block is {}; a sample holds at least 1 token", options.block));
  }
  if (options.vocabulary < 1) {
    return base::invalid_argument(
        fmt::format("the vocabulary holds {} ids; it needs at least 1", options.vocabulary));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return base::invalid_argument(fmt::format("data.validation_fraction is {}; it lies in [0, 1)",
                                              options.validation_fraction));
  }
  return {};
}

Status too_short(const char* part, int64_t tokens, const SampleOptions& options) {
  return base::invalid_argument(fmt::format(
      "the {} part of the text has {} tokens, and one sample of block {} needs {}; bring a longer "
      "text, or set model.block or data.validation_fraction",
      part, tokens, options.block, options.block + 1));
}

}  // namespace

Result<TokenSamples> TokenSamples::create(TokenSource tokens, const SampleOptions& options) {
  HANJI_RETURN_IF_ERROR(check_options(options));
  const double kept = static_cast<double>(tokens.num_tokens()) * (1 - options.validation_fraction);
  const int64_t border = options.validation_fraction == 0 ? tokens.num_tokens()
                                                          : static_cast<int64_t>(std::floor(kept));
  TokenSamples samples(std::move(tokens), options, border);
  if (samples.num_train() == 0) {
    return too_short("training", samples.range(Part::kTrain).size(), options);
  }
  if (options.validation_fraction > 0 && samples.num_validation() == 0) {
    return too_short("validation", samples.range(Part::kValidation).size(), options);
  }
  return samples;
}

layout::Range TokenSamples::range(Part part) const {
  if (part == Part::kTrain) return {0, border_};
  return {border_, tokens_.num_tokens()};
}

int64_t TokenSamples::count(Part part) const {
  const int64_t tokens = range(part).size();
  return tokens == 0 ? 0 : (tokens - 1) / options_.block;
}

SampleShape TokenSamples::shape() const {
  return {.inputs = {block()}, .dtype = c10::ScalarType::Long, .targets = {block()}};
}

Status TokenSamples::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  return copy_sample(part, index, batch.inputs.mutable_data_ptr<int64_t>() + row * block(),
                     batch.targets.mutable_data_ptr<int64_t>() + row * block());
}

std::vector<uint32_t> TokenSamples::train_pages() const {
  constexpr int64_t kPageBytes = int64_t{8} << 20;
  const int64_t sample_bytes = block() * static_cast<int64_t>(size_of(tokens_.width()));
  std::vector<uint32_t> pages;
  for (int64_t i = 0; i < num_train(); ++i) {
    pages.push_back(static_cast<uint32_t>(i * sample_bytes / kPageBytes));
  }
  return pages;
}

Status TokenSamples::copy_sample(Part part, int64_t index, int64_t* inputs,
                                 int64_t* targets) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  const int64_t block = options_.block;
  const int64_t begin = range(part).begin + index * block;
  return tokens_.copy_pair(begin, block, options_.vocabulary, inputs, targets);
}

}  // namespace hanji::data
