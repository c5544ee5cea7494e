#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hanji/base/status.h"
#include "hanji/shm/segment.h"

namespace hanji::launch {

/// What is left of a job that failed: what `hanji debug` would have said when its last rank ended.
struct FlightRecord {
  std::filesystem::path path;
  int64_t wall_ns = 0;  ///< When it was written; a restarted job leaves its last failure's.
  std::string text;     ///< Verdict and table.
  std::string json;     ///< shm::to_json() with the last calls of every rank, and `text`.
};

/// Writes flight.json into `folder`.
Status write_flight_record(const shm::Segment& segment, const std::filesystem::path& folder);

/// Reads flight.json of `folder`, or of the folder `logs` in it.
/// Errors  kNotFound if there is none, kCorrupt if it is damaged.
Result<FlightRecord> read_flight_record(const std::filesystem::path& folder);

}  // namespace hanji::launch
