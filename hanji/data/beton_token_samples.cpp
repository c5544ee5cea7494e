#include "hanji/data/beton_token_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "hanji/base/checksum.h"

namespace hanji::data {
namespace {

constexpr std::pair<std::string_view, TokenWidth> kTokenWidths[] = {
    {"|u1", TokenWidth::kUInt8}, {"|i1", TokenWidth::kInt8},  {"<u2", TokenWidth::kUInt16},
    {"<i2", TokenWidth::kInt16}, {"<i4", TokenWidth::kInt32}, {"<u4", TokenWidth::kUInt32},
    {"<i8", TokenWidth::kInt64}};

std::optional<TokenWidth> token_width_of(const BetonField& field) {
  const bool is_array = field.type == BetonType::kNdArray || field.type == BetonType::kTorchTensor;
  if (!is_array || field.shape.size() != 1 || field.shape[0] < 2) return std::nullopt;
  const auto* found =
      std::ranges::find(kTokenWidths, field.dtype, &std::pair<std::string_view, TokenWidth>::first);
  return found == std::end(kTokenWidths) ? std::nullopt : std::optional(found->second);
}

}  // namespace

Result<BetonTokenSamples> BetonTokenSamples::create(BetonFile file, const SampleOptions& options) {
  const auto field = std::ranges::find_if(
      file.fields(), [](const BetonField& one) { return token_width_of(one).has_value(); });
  if (field == file.fields().end()) {
    return base::unsupported(
        "a file of tokens has an array of one dimension of integers; `hanji data info` lists the "
        "fields, `hanji data make --tokens` and `--text` write one; for images set model.preset to "
        "a model of them, such as resnet-tiny");
  }
  const auto block = static_cast<int64_t>(field->shape[0]) - 1;
  if (block != options.block) {
    return base::invalid_argument(fmt::format(
        "samples of {0} tokens and the next one, but model.block is {1}; set model.block = {0}, or "
        "make the file with --length {1}",
        block, options.block));
  }
  const double fraction = options.validation_fraction;
  const auto count = static_cast<int64_t>(file.num_samples());
  const auto border = static_cast<int64_t>(std::floor(static_cast<double>(count) * (1 - fraction)));
  if (!(fraction >= 0 && fraction < 1) || border < 1 || (fraction > 0 && border == count)) {
    return base::invalid_argument(fmt::format(
        "{} samples leave a part without any at a validation_fraction of {}", count, fraction));
  }
  BetonTokenSamples samples(std::move(file), static_cast<size_t>(field - file.fields().begin()),
                            *token_width_of(*field), block);
  samples.border_ = border;
  HANJI_RETURN_IF_ERROR(samples.look_through());
  if (options.vocabulary >= 0 && samples.largest_token_ >= options.vocabulary) {
    return base::invalid_argument(
        fmt::format("token {} lies outside a vocabulary of {}; set model.vocabulary to at least {}",
                    samples.largest_token_, options.vocabulary, samples.largest_token_ + 1));
  }
  return samples;
}

Result<TokenSource> BetonTokenSamples::tokens(int64_t sample) const {
  HANJI_ASSIGN_OR_RETURN(const BetonValue value, file_.read(static_cast<uint64_t>(sample), field_));
  return TokenSource(nullptr, value.bytes, width_);
}

Status BetonTokenSamples::look_through() {
  base::Xxh3 hash;
  for (int64_t sample = 0; sample < static_cast<int64_t>(file_.num_samples()); ++sample) {
    HANJI_ASSIGN_OR_RETURN(const TokenSource all, tokens(sample));
    hash.update(all.bytes());
    largest_token_ = std::max(largest_token_, all.largest_token());
    const auto in_range = all.check_vocabulary(largest_token_ + 1);
    if (!in_range.ok()) return in_range.at(fmt::format("sample {}", sample));
  }
  checksum_ = hash.digest();
  return {};
}

int64_t BetonTokenSamples::count(Part part) const {
  return part == Part::kTrain ? border_ : static_cast<int64_t>(file_.num_samples()) - border_;
}

int64_t BetonTokenSamples::sample_of(Part part, int64_t index) const {
  return part == Part::kTrain ? index : border_ + index;
}

SampleShape BetonTokenSamples::shape() const {
  return {.inputs = {block_}, .dtype = c10::ScalarType::Long, .targets = {block_}};
}

Status BetonTokenSamples::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  HANJI_ASSIGN_OR_RETURN(const TokenSource all, tokens(sample_of(part, index)));
  HANJI_RETURN_IF_ERROR(
      all.copy_tokens(0, block_, batch.inputs.mutable_data_ptr<int64_t>() + row * block_));
  return all.copy_tokens(1, block_, batch.targets.mutable_data_ptr<int64_t>() + row * block_);
}

std::vector<uint32_t> BetonTokenSamples::train_pages() const {
  std::vector<uint32_t> pages = file_.sample_pages(field_);
  pages.resize(static_cast<size_t>(border_));
  return pages;
}

}  // namespace hanji::data
