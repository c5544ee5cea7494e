#pragma once

#include "hanji/cli/command_line.h"

namespace hanji::cli {

/// Declares `data make` on the verb `data`.
void add_data_make(Verb data_verb);

}  // namespace hanji::cli
