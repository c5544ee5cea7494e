#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>

namespace hanji::shm {

class Segment;

/// Where in the source each rank's calls stand, as text in the segment, so that every rank can
/// name the others' lines. Sites of a rank are numbered from 1; 0 is "unknown".
///
/// Thread  any; a known site is found without a lock and without allocating.
class CallSites {
 public:
  explicit CallSites(const Segment& segment);
  ~CallSites();

  /// The number of "file.cpp:12 (label)". 0 once `rank` has used all 1023.
  uint32_t intern(int rank, const std::source_location& site, std::string_view label = {});
  uint32_t intern(int rank, std::string_view text);

  /// The text of a site of any rank; "an unknown call site" if there is none.
  std::string describe(int rank, uint32_t id) const;

 private:
  struct Cache;
  uint32_t find_or_add(int rank, uint64_t key, std::string_view text);
  uint32_t find(const Cache& cache, uint64_t key) const;
  uint32_t add(int rank, std::string_view text);

  const Segment& segment_;
  std::unique_ptr<std::unique_ptr<Cache>[]> caches_;
  std::mutex mutex_;
};

}  // namespace hanji::shm
