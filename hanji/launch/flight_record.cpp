#include "hanji/launch/flight_record.h"

#include <fcntl.h>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/shm/hang.h"
#include "hanji/shm/snapshot_text.h"

namespace hanji::launch {
namespace {

constexpr std::string_view kFile = "flight.json";
constexpr size_t kDepth = 8;
constexpr size_t kMaxBytes = size_t{256} << 20;  // 4096 calls of 64 ranks take about 80 MiB

}  // namespace

Status write_flight_record(const shm::Segment& segment, const std::filesystem::path& folder) {
  const base::Fd fd(::fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  HANJI_ASSIGN_OR_RETURN(const shm::Snapshot snapshot, shm::take_snapshot(fd));
  const shm::HangVerdict verdict = shm::judge(snapshot);
  const std::string calls = shm::to_json(snapshot, verdict, shm::kFlightCalls);
  HANJI_ASSIGN_OR_RETURN(base::Json json, base::parse_json(calls, kDepth, kMaxBytes));
  json["wall_ns"] = base::wall_ns();
  json["text"] = verdict.sentence + "\n\n" + shm::table(snapshot);
  return base::write_file_atomic(folder / kFile, base::dump(json) + "\n");
}

Result<FlightRecord> read_flight_record(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path path = folder / kFile;
  if (!std::filesystem::exists(path, error)) path = folder / "logs" / kFile;
  HANJI_ASSIGN_OR_RETURN(std::string content, base::read_file(path, kMaxBytes));
  const auto json = base::parse_json(content, kDepth, kMaxBytes);
  if (!json.ok()) return json.status().at(path.string());
  const bool whole = json->is_object() && json->contains("text") && json->contains("wall_ns") &&
                     (*json)["text"].is_string() && (*json)["wall_ns"].is_number_integer();
  if (!whole) return base::corrupt(path.string() + " is no flight record of a job");
  return FlightRecord{path, (*json)["wall_ns"].get<int64_t>(), (*json)["text"].get<std::string>(),
                      std::move(content)};
}

}  // namespace hanji::launch
