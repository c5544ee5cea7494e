#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// The bytes of a TensorBoard event file.
///
/// A record is: u64 length, u32 masked crc32c of those 8 bytes, payload, u32 masked crc32c of the
/// payload, all little-endian. The payload is a protobuf message Event.
/// Source  tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.h.
namespace hanji::trace::internal {

/// Rotates right by 15 and adds a constant: a checksum of bytes that hold checksums is no good.
uint32_t mask_crc(uint32_t crc);
std::string frame(std::string_view payload);

/// Events; `wall_seconds` since 1970.
std::string version_event(double wall_seconds);
std::string scalar_event(double wall_seconds, int64_t step, std::string_view tag, float value);
/// Tells readers that what earlier files say of `step` and later steps is void.
std::string restart_event(double wall_seconds, int64_t step);
std::string text_event(double wall_seconds, int64_t step, std::string_view tag,
                       std::string_view text);

}  // namespace hanji::trace::internal
