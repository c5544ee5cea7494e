#pragma once

#include <string>
#include <string_view>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// A memfd that holds the plan, sealed: no rank can change what another one reads.
Result<base::Fd> write_plan(std::string_view plan_json);

/// Reads all of it, whatever the descriptor's offset, which ranks share.
/// Errors  kCorrupt if it is not sealed or longer than 64 MiB.
Result<std::string> read_plan(int fd);

}  // namespace hanji::launch
