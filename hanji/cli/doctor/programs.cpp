#include <fmt/format.h>
#include <unistd.h>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/cli/doctor/gather.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/comm/nccl/group.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

std::string find_program(std::string_view path, const std::string& name) {
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    const fs::path candidate = fs::path(path.substr(0, end)) / name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return "";
}

Result<double> seconds_to_write(const fs::path& file, size_t bytes) {
  const int64_t begin = base::now_ns();
  HANJI_ASSIGN_OR_RETURN(auto out, base::OutputFile::open(file, base::OutputFile::Mode::kNew));
  const std::string block(size_t{1} << 20, 'h');
  for (size_t done = 0; done < bytes; done += block.size())
    HANJI_RETURN_IF_ERROR(out.append(block));
  HANJI_RETURN_IF_ERROR(out.sync());
  HANJI_RETURN_IF_ERROR(out.close());
  return static_cast<double>(base::now_ns() - begin) * 1e-9;
}

}  // namespace

Findings find_programs(std::string_view path) {
  Findings found;
  for (const std::string name : {"mpirun", "torchrun", "srun"}) {
    const std::string where = find_program(path, name);
    found.push_back({"launchers", name, where.empty() ? "not on PATH" : where});
  }
  found.push_back({"engines", "shm", "built in"});
  found.push_back(
      {"engines", "gloo", comm::gloo::available() ? "in this libtorch" : "not in this libtorch"});
  found.push_back({"engines", "mpi",
                   comm::mpi::available() ? "built in, for programs under mpirun or srun"
                                          : "not built in; libopenmpi-dev was missing"});
  const auto nccl = comm::nccl::find_version();
  found.push_back({"engines", "nccl",
                   nccl.ok() ? "version " + *nccl + ", loaded when a group asks for it"
                             : "no libnccl.so.2 here; libtorch for CUDA brings one"});
  return found;
}

Findings measure_disk(const fs::path& folder) {
  constexpr size_t kBytes = size_t{64} << 20;
  const fs::path file = folder / fmt::format(".hanji-doctor-{}", ::getpid());
  const auto seconds = seconds_to_write(file, kBytes);
  const Status removed = base::remove_tree(file);
  Findings found;
  if (!seconds.ok() || !removed.ok()) {
    found.push_back(
        {"disk", folder.string(), seconds.ok() ? removed.message() : seconds.status().message(),
         Verdict::kBroken, "runs are written there; name another folder with --folder"});
    return found;
  }
  found.push_back(
      {"disk", folder.string(),
       fmt::format("{:.2f} 10^9 bytes/s written and synced", kBytes / *seconds * 1e-9)});
  if (const auto free = base::free_bytes(folder); free.ok()) {
    found.push_back({"disk", "free", base::format_bytes(*free)});
    if (*free < int64_t{1} << 30) {
      found.back().verdict = Verdict::kNote;
      found.back().advice = "a few checkpoints fill it; name a larger disk with --out";
    }
  }
  return found;
}

}  // namespace hanji::cli
