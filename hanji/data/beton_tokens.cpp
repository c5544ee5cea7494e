#include "hanji/data/beton_tokens.h"

#include <fmt/format.h>

namespace hanji::data {
namespace {

std::string numpy_type(TokenWidth width) {
  switch (width) {
    case TokenWidth::kUInt8: return "|u1";
    case TokenWidth::kInt8: return "|i1";
    case TokenWidth::kUInt16: return "<u2";
    case TokenWidth::kInt16: return "<i2";
    case TokenWidth::kInt32: return "<i4";
    case TokenWidth::kUInt32: return "<u4";
    case TokenWidth::kInt64: return "<i8";
  }
  return "";
}

}  // namespace

Result<BetonRecipe> token_recipe(const TokenSource& tokens, int64_t length,
                                 const std::string& provenance) {
  if (length < 1 || length >= tokens.num_tokens()) {
    return base::invalid_argument(fmt::format(
        "samples of {} tokens and the next one, of {} tokens; choose a length of 1 to {}", length,
        tokens.num_tokens(), tokens.num_tokens() - 1));
  }
  const uint64_t width = size_of(tokens.width());
  const auto step = static_cast<uint64_t>(length);
  const uint64_t sample_bytes = (step + 1) * width;
  return BetonRecipe{
      .fields = {{.name = "tokens",
                  .type = BetonType::kNdArray,
                  .shape = {step + 1},
                  .dtype = numpy_type(tokens.width())}},
      .num_samples = static_cast<uint64_t>(tokens.num_tokens() - 1) / step,
      .max_sample_bytes = sample_bytes,
      .largest = fmt::format("{} tokens, field tokens", step + 1),
      .provenance = provenance,
      .key = tokens.checksum(),
      .read = [tokens, step, width, sample_bytes](uint64_t i, BetonSample& out) {
        out.values = {{.bytes = tokens.bytes().subspan(i * step * width, sample_bytes)}};
        return Status();
      }};
}

}  // namespace hanji::data
