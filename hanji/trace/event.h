#pragma once

#include <cstdint>
#include <string_view>

namespace hanji::trace {

/// Who was busy: one row of the timeline per lane of a rank.
enum class Lane : uint8_t { kMain, kCommunication, kData, kCheckpoint };
inline constexpr int kNumLanes = 4;
std::string_view name_of(Lane lane);

/// What the time went into.
/// kCommunication is a collective from its call to its result; kSkew is the part of it for which the
/// rank waited for a slower one, kTransfer the part in which bytes moved: on Lane::kMain while the rank's
/// own thread moved them or waited for them, on Lane::kCommunication beside what it computed.
enum class Category : uint8_t {
  kStep,
  kCompute,
  kCommunication,
  kData,
  kCheckpoint,
  kOther,
  kSkew,
  kTransfer
};
inline constexpr int kNumCategories = 8;
std::string_view name_of(Category category);

/// Index of an interned name; 0 is "(other)".
using NameId = uint32_t;

inline constexpr int64_t kCurrentStep = -1;
inline constexpr uint8_t kNoDType = 255;
inline constexpr uint8_t kNoRoutine = 255;
inline constexpr uint8_t kNoOp = 255;

/// One span of time. Units: nanoseconds of base::now_ns().
struct Event {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  NameId name = 0;
  Lane lane = Lane::kMain;
  Category category = Category::kOther;
  int64_t step = kCurrentStep;  ///< Replaced by the recorder's step when added; below 2^40.
  int64_t bytes = 0;            ///< Moved or written meanwhile; below 2^48.
  /// What a call was called with: its number within its group, -1 for no call, below 2^48; the ranks and the id of
  /// that group, up to 65534, -1 where it has none; schedule's Routine and ReduceOp, and a base::DType, as numbers; its
  /// counts, as schedule::hash_of_counts(); shm::CallSites of its rank, up to 65535.
  int64_t sequence = -1;
  int32_t group_size = 0;
  int32_t group = -1;
  uint8_t routine = kNoRoutine;
  uint8_t op = kNoOp;
  uint8_t dtype = kNoDType;
  uint32_t counts = 0;
  uint32_t call_site = 0;
};

}  // namespace hanji::trace
