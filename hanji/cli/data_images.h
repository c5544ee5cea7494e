#pragma once

#include "hanji/cli/command_line.h"

namespace hanji::cli {

/// Each declares a verb of images on the verb `data`.
void add_data_show(Verb data_verb);
void add_data_convert(Verb data_verb);
void add_data_bench(Verb data_verb);

}  // namespace hanji::cli
