#include "hanji/base/log.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "hanji/base/clock.h"

namespace hanji::base {

std::string format_time(int64_t wall_ns) {
  const time_t seconds = wall_ns / 1'000'000'000;
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     wall_ns / 1'000'000 % 1000);
}

void Log::write(std::string_view level, std::string_view text) const {
  if (fd_ < 0) return;
  const std::string_view space = prefix_.empty() ? "" : " ";
  const std::string line =
      fmt::format("{}{}{} {}{}\n", format_time(wall_ns()), space, prefix_, level, text);
  while (::write(fd_, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace hanji::base
