#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::base {

/// "512 B", "1.50 kB", "64.0 MB": powers of 1000, three digits, in all that is printed.
std::string format_bytes(int64_t bytes);
/// "850 ns", "1.20 ms", "3.50 s", "2 min 05 s", "3 h 07 min".
std::string format_seconds(double seconds);
/// "950", "10.7 k", "124 M": powers of 1000, three digits.
std::string format_count(int64_t count);
/// "1 page", "2 pages": a word that takes an s.
std::string counted(int64_t count, std::string_view one);

/// "4096", "64KiB", "64 MiB", "1.5GiB" (powers of 1024) or "64MB" (powers of 1000), in bytes.
/// Errors  kInvalidArgument for another unit, a negative value, or one above 2^63 - 1.
Result<int64_t> parse_bytes(std::string_view text);
/// "250ms", "300s", "5m", "2h", "10us", "100ns", in seconds. A bare number is refused but for "0".
Result<double> parse_seconds(std::string_view text);

}  // namespace hanji::base
