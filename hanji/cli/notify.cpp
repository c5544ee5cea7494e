#include "hanji/cli/notify.h"

#include <iostream>

#include "hanji/launch/launcher.h"

namespace hanji::cli {

void notify(const launch::RankEvent& event) {
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
