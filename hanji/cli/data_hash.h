#pragma once

#include "hanji/cli/command_line.h"

namespace hanji::cli {

/// Declares `data hash` on the verb `data`.
void add_data_hash(Verb data_verb);

}  // namespace hanji::cli
