#pragma once

#include <string>

#include "hanji/data/make_beton.h"
#include "hanji/data/token_source.h"

namespace hanji::data {

/// The samples that a model of `length` tokens of context trains on: sample i is tokens
/// [i * length, i * length + length + 1), as data::TokenSamples cuts them. The field `tokens` is an
/// array of length + 1 ids, as wide as they are in the source; the last tokens that fill no sample
/// are left out.
///
/// Errors  kInvalidArgument for a length below 1, or more than the source has.
Result<BetonRecipe> token_recipe(const TokenSource& tokens, int64_t length,
                                 const std::string& provenance);

}  // namespace hanji::data
