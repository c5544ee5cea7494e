#pragma once

namespace hanji::cost {

/// Where the time of the longest path goes; the three add up to the whole.
struct Terms {
  double latency = 0;    ///< Waiting for a message to begin, or for all ranks to meet.
  double bandwidth = 0;  ///< Moving bytes.
  double reduction = 0;  ///< Combining elements.
  int rounds = 0;        ///< Messages, or meetings, one after another on that path.

  double seconds() const { return latency + bandwidth + reduction; }
};

}  // namespace hanji::cost
