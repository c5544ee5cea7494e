#pragma once

#include <optional>
#include <string>

#include "hanji/cli/command_line.h"
#include "hanji/cli/long_verb.h"
#include "hanji/data/make_beton.h"

namespace hanji::cli {

/// Declares `data make` on the verb `data`.
void add_data_make(Verb data_verb);

/// Makes a file with a line of progress; none if it was interrupted, which is said.
/// Errors  throws those of data::make_beton().
std::optional<data::MadeBeton> make_samples(const data::BetonRecipe& recipe, const std::string& out,
                                            int threads, LongVerb& work);

}  // namespace hanji::cli
