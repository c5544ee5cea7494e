#pragma once

#include <string>
#include <string_view>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// A memfd that holds `text`, sealed: no rank can change what another one reads. `what` names it.
Result<base::Fd> write_sealed(std::string_view text, const std::string& what);

/// Reads all of it, whatever the descriptor's offset, which ranks share.
/// Errors  kCorrupt if it is not sealed or longer than 64 MiB.
Result<std::string> read_sealed(int fd, const std::string& what);

}  // namespace hanji::launch
