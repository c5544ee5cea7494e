#include "hanji/launch/roster.h"

#include <unistd.h>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/topology/machine.h"

namespace hanji::launch {

Roster::Roster(std::filesystem::path path) : path_(std::move(path)) {
  const auto machine = topology::read_machine();
  host_ = machine.ok() ? machine->hostname : "localhost";
}

void Roster::note(const RankEvent& event) {
  using Kind = RankEventKind;
  if (event.kind == Kind::kStarted) pids_[event.rank] = event.pid;
  const bool gone =
      event.kind == Kind::kEnded || event.kind == Kind::kFailed || event.kind == Kind::kSecondary;
  if (gone) pids_.erase(event.rank);
  if (gone || event.kind == Kind::kStarted) write();
}

void Roster::remove() { status_ = base::remove_tree(path_); }

void Roster::write() {
  base::Json json;
  json["launcher"] = {{"pid", ::getpid()}, {"host", host_}};
  json["ranks"] = base::Json::array();
  for (const auto& [rank, pid] : pids_) {
    json["ranks"].push_back({{"rank", rank}, {"pid", pid}, {"host", host_}});
  }
  status_ = base::write_file_atomic(path_, base::dump(json, 2) + "\n");
}

}  // namespace hanji::launch
