#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::launch {

/// What a client asks of the server. The numbers travel; a new one goes to the end.
enum class Operation : uint8_t {
  kPing,        ///< Nothing: says that the client lives.
  kSet,         ///< texts: key, value.
  kGet,         ///< key. Answered once it is set.
  kAdd,         ///< key; number: the amount.
  kAppend,      ///< key, value.
  kCompareSet,  ///< key, expected, desired.
  kWait,        ///< keys. Answered once all are set.
  kCheck,       ///< keys.
  kRemove,      ///< key.
  kCount,
  kBarrier,  ///< name; number: size << 32 | index. Answered once all have come.
  kCancel,   ///< number: the id of a request that waits. Answered with what it waits for.
  kGoodbye,  ///< This client ends as it should.
};
inline constexpr int kNumOperations = 13;

/// In a frame: operation (u8), id, acknowledged, number (each 64 bits), number of texts (u32), and
/// per text its length (u32) and bytes. Little-endian.
struct Request {
  Operation operation = Operation::kPing;
  uint64_t id = 0;  ///< Grows by one per request of a client.
  uint64_t acknowledged =
      0;  ///< Answers to all ids below have come, so nobody asks for them again.
  int64_t number = 0;
  std::vector<std::string> texts;

  bool operator==(const Request&) const = default;
};

/// In a frame: id (u64), code (u8), text to the end.
struct Response {
  uint64_t id = 0;
  Code code = Code::kOk;
  std::string text;

  bool operator==(const Response&) const = default;
};

inline constexpr size_t kMaxKeyBytes = 8 << 10;
inline constexpr size_t kMaxValueBytes = 1 << 20;
inline constexpr size_t kMaxTexts = 4096;

std::string to_bytes(const Request& request);
std::string to_bytes(const Response& response);

/// Errors  kCorrupt for anything that to_bytes() does not write, or a wrong number of texts. Sizes
///         are checked against what is there before anything is allocated.
Result<Request> parse_request(std::string_view bytes);
Result<Response> parse_response(std::string_view bytes);

}  // namespace hanji::launch
