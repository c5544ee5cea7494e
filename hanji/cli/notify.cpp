#include "hanji/cli/notify.h"

#include <iostream>
#include <string>

#include "hanji/launch/launcher.h"

namespace hanji::cli {

void notify(const launch::RankEvent& event) {
  if (event.kind != launch::RankEventKind::kFailed) return notify_at_once(event);
  const std::string what =
      event.rank < 0 ? "another host has" : "rank " + std::to_string(event.rank) + " has";
  std::cerr << "hanji: " << what << " failed; the cause is told when all ranks have ended\n";
}

void notify_at_once(const launch::RankEvent& event) {
  const bool ordinary =
      event.kind == launch::RankEventKind::kStarted || event.kind == launch::RankEventKind::kEnded;
  if (!ordinary) std::cerr << "hanji: " << event.text << "\n";
}

void notify_unusable(const std::vector<Status>& refused) {
  for (const Status& reason : refused) {
    std::cerr << "hanji: not usable: " << reason.message() << "\n";
  }
}

}  // namespace hanji::cli
