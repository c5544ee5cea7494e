#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace hanji::comm::nccl {

/// How NCCL is found and set up, before its first use in this process.
struct Options {
  /// A file name that the loader searches, or a path.
  std::string library = "libnccl.so.2";
  /// NCCL's own variables, e.g. {"NCCL_SOCKET_IFNAME", "eth0"}; stronger than the environment.
  std::map<std::string, std::string> variables = {};
  /// Gets NCCL's own log, one file "nccl.rank.N" per rank; empty: NCCL logs as its variables say.
  std::filesystem::path log_directory = {};
};

}  // namespace hanji::comm::nccl
