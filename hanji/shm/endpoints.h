#pragma once

#include <vector>

#include "hanji/base/fd.h"

namespace hanji::shm {

/// How a rank connects to its peers on this host, under any launcher: what launchers pass on.
struct Endpoints {
  base::Fd segment;
  base::Fd control;              ///< Socket to the launcher; -1 if there is none.
  std::vector<base::Fd> pidfds;  ///< By rank; the own one is -1.
  int rank = 0;
  int size = 1;
};

}  // namespace hanji::shm
