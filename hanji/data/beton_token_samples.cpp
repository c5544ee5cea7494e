#include "hanji/data/beton_token_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/cached_file.h"

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

struct BetonTokenSamples::State {
  internal::CachedFile cached;
  size_t field = 0;
  TokenWidth width = TokenWidth::kUInt16;
  int64_t block = 0;
  int64_t border = 0;  ///< The first sample that validates.
  int64_t largest_token = -1;
  uint64_t checksum = 0;

  int64_t num_samples() const { return static_cast<int64_t>(cached.file().num_samples()); }
  int64_t sample_of(Part part, int64_t index) const {
    return part == Part::kTrain ? index : border + index;
  }
  /// The block + 1 ids of a sample of the file.
  Result<TokenSource> tokens(int64_t sample, internal::From from) const;
  Status copy_sample(int64_t sample, internal::From from, layers::Batch& batch, int64_t row) const;
  Status look_through();
};

Result<BetonTokenSamples> BetonTokenSamples::create(BetonFile file, const SampleOptions& options,
                                                    int64_t cached_pages) {
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
  const auto number = static_cast<size_t>(field - file.fields().begin());
  const TokenWidth width = *token_width_of(*field);
  HANJI_ASSIGN_OR_RETURN(auto cached, internal::CachedFile::create(std::move(file), cached_pages));
  auto state = std::make_unique<State>(State{.cached = std::move(cached),
                                             .field = number,
                                             .width = width,
                                             .block = block,
                                             .border = border});
  HANJI_RETURN_IF_ERROR(state->look_through());
  const int64_t largest = state->largest_token;
  if (options.vocabulary >= 0 && largest >= options.vocabulary) {
    return base::invalid_argument(
        fmt::format("token {} lies outside a vocabulary of {}; set model.vocabulary to at least {}",
                    largest, options.vocabulary, largest + 1));
  }
  return BetonTokenSamples(std::move(state));
}

BetonTokenSamples::BetonTokenSamples(std::unique_ptr<State> state) : state_(std::move(state)) {}
BetonTokenSamples::BetonTokenSamples(BetonTokenSamples&&) noexcept = default;
BetonTokenSamples& BetonTokenSamples::operator=(BetonTokenSamples&&) noexcept = default;
BetonTokenSamples::~BetonTokenSamples() = default;

uint64_t BetonTokenSamples::checksum() const { return state_->checksum; }
int64_t BetonTokenSamples::largest_token() const { return state_->largest_token; }
const std::shared_ptr<PageCache>& BetonTokenSamples::cache() const {
  return state_->cached.cache();
}

Result<TokenSource> BetonTokenSamples::State::tokens(int64_t sample, internal::From from) const {
  HANJI_ASSIGN_OR_RETURN(const BetonValue value,
                         cached.read(static_cast<uint64_t>(sample), field, from));
  return TokenSource(nullptr, value.bytes, width);
}

Status BetonTokenSamples::State::look_through() {
  base::Xxh3 hash;
  for (int64_t sample = 0; sample < num_samples(); ++sample) {
    HANJI_ASSIGN_OR_RETURN(const TokenSource all, tokens(sample, internal::From::kFile));
    hash.update(all.bytes());
    largest_token = std::max(largest_token, all.largest_token());
    const auto in_range = all.check_vocabulary(largest_token + 1);
    if (!in_range.ok()) return in_range.at(fmt::format("sample {}", sample));
  }
  checksum = hash.digest();
  return {};
}

Status BetonTokenSamples::State::copy_sample(int64_t sample, internal::From from,
                                             layers::Batch& batch, int64_t row) const {
  HANJI_ASSIGN_OR_RETURN(const TokenSource all, tokens(sample, from));
  const int64_t at = row * block;
  return all.copy_pair(0, block, largest_token + 1, batch.inputs.mutable_data_ptr<int64_t>() + at,
                       batch.targets.mutable_data_ptr<int64_t>() + at);
}

int64_t BetonTokenSamples::count(Part part) const {
  return part == Part::kTrain ? state_->border : state_->num_samples() - state_->border;
}

SampleShape BetonTokenSamples::shape() const {
  return {.inputs = {state_->block}, .dtype = c10::ScalarType::Long, .targets = {state_->block}};
}

Status BetonTokenSamples::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  return state_->copy_sample(state_->sample_of(part, index), internal::From::kFile, batch, row);
}

Status BetonTokenSamples::read_in_epoch(int64_t, int64_t index, layers::Batch& batch,
                                        int64_t row) const {
  HANJI_RETURN_IF_ERROR(check_index(Part::kTrain, index));
  return state_->copy_sample(index, internal::From::kCache, batch, row);
}

void BetonTokenSamples::expect(int64_t index) const {
  if (index >= 0) state_->cached.expect(static_cast<uint64_t>(index), state_->field);
}

std::vector<uint32_t> BetonTokenSamples::train_pages() const {
  std::vector<uint32_t> pages = state_->cached.file().sample_pages(state_->field);
  pages.resize(static_cast<size_t>(state_->border));
  return pages;
}

}  // namespace hanji::data
