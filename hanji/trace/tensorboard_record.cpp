#include <bit>

#include "hanji/base/checksum.h"
#include "hanji/trace/internal/tensorboard_record.h"

namespace hanji::trace::internal {
namespace {

constexpr uint64_t kString = 7;  // tensorflow.DataType.DT_STRING

std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

/// A protobuf field is its number and wire type, then the value.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string key(unsigned number, WireType type) { return varint(number << 3 | type); }

std::string bytes_field(unsigned number, std::string_view bytes) {
  return (key(number, kBytes) + varint(bytes.size())).append(bytes);
}

std::string integer_field(unsigned number, int64_t value) {
  return key(number, kVarint) + varint(static_cast<uint64_t>(value));
}

/// SummaryMetadata{plugin_data{plugin_name}}
std::string metadata_field(std::string_view plugin) {
  return bytes_field(9, bytes_field(1, bytes_field(1, plugin)));
}

std::string start_of_event(double wall_seconds) {
  return key(1, kFixed64) + little_endian(std::bit_cast<uint64_t>(wall_seconds), 8);
}

std::string summary_event(double wall_seconds, int64_t step, std::string_view value) {
  const std::string summary = bytes_field(1, value);
  return start_of_event(wall_seconds) + integer_field(2, step) + bytes_field(5, summary);
}

uint32_t masked_crc(std::string_view bytes) {
  return mask_crc(base::crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

}  // namespace

uint32_t mask_crc(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8; }

std::string frame(std::string_view payload) {
  const std::string length = little_endian(payload.size(), 8);
  std::string record = length + little_endian(masked_crc(length), 4);
  record.append(payload);
  return record + little_endian(masked_crc(payload), 4);
}

std::string version_event(double wall_seconds) {
  return start_of_event(wall_seconds) + bytes_field(3, "brain.Event:2") +
         bytes_field(10, bytes_field(1, "hanji"));  // SourceMetadata{writer}
}

std::string scalar_event(double wall_seconds, int64_t step, std::string_view tag, float value) {
  const std::string simple_value =
      key(2, kFixed32) + little_endian(std::bit_cast<uint32_t>(value), 4);
  return summary_event(wall_seconds, step,
                       bytes_field(1, tag) + simple_value + metadata_field("scalars"));
}

/// SessionLog{status START}: readers drop what they know from this step on.
std::string restart_event(double wall_seconds, int64_t step) {
  return start_of_event(wall_seconds) + integer_field(2, step) +
         bytes_field(7, integer_field(1, 1));
}

/// Value{tag, tensor{dtype, tensor_shape{dim{size 1}}, string_val}, metadata}
std::string text_event(double wall_seconds, int64_t step, std::string_view tag,
                       std::string_view text) {
  const std::string shape = bytes_field(2, integer_field(1, 1));
  const std::string tensor =
      integer_field(1, kString) + bytes_field(2, shape) + bytes_field(8, text);
  return summary_event(wall_seconds, step,
                       bytes_field(1, tag) + bytes_field(8, tensor) + metadata_field("text"));
}

}  // namespace hanji::trace::internal
