#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace hanji::trace {

/// One question and answer between two clocks: asked at t0, received there at t1, answered at t2, received at t3. t0
/// and t3 are of the own clock, t1 and t2 of the other one.
struct ClockSample {
  int64_t t0 = 0, t1 = 0, t2 = 0, t3 = 0;
};

/// What is added to the own clock to get the other one, at one moment.
struct ClockReading {
  int64_t at_ns = 0;  ///< Of the own clock.
  int64_t offset_ns = 0;
  int64_t error_ns = 0;  ///< The most that it is wrong by, whatever took how long on which way.
  bool operator==(const ClockReading&) const = default;
};

/// The reading of the sample whose way took least; none of no samples.
std::optional<ClockReading> read_clock(const std::vector<ClockSample>& samples);

/// The clock of one host in terms of another's, which may run faster or slower.
class ClockOffset {
 public:
  /// The same clock.
  ClockOffset() = default;
  /// Through one reading, or two: clocks drift evenly between them.
  explicit ClockOffset(const ClockReading& begin, std::optional<ClockReading> end = {});

  /// A time of the own clock on the other one.
  int64_t convert(int64_t ns) const;
  /// The most that a converted time between the readings is wrong by, if the drift was even.
  int64_t error_ns() const { return error_ns_; }
  int64_t offset_ns() const { return offset_ns_; }  ///< At the first reading.
  double drift_ppm() const { return drift_ * 1e6; }
  bool is_own() const { return is_own_; }

 private:
  bool is_own_ = true;
  int64_t at_ns_ = 0, offset_ns_ = 0, error_ns_ = 0;
  double drift_ = 0;
};

}  // namespace hanji::trace
