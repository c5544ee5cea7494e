#include "hanji/launch/control_plane/request.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

namespace hanji::launch {
namespace {

struct Bounds {
  size_t least;
  size_t most;
};

/// How many texts each operation has.
constexpr std::array<Bounds, kNumOperations> kTexts = {{
    {0, 0},          // kPing
    {2, 2},          // kSet
    {1, 1},          // kGet
    {1, 1},          // kAdd
    {2, 2},          // kAppend
    {3, 3},          // kCompareSet
    {1, kMaxTexts},  // kWait
    {1, kMaxTexts},  // kCheck
    {1, 1},          // kRemove
    {0, 0},          // kCount
    {1, 1},          // kBarrier
    {0, 0},          // kCancel
    {0, 0},          // kGoodbye
}};

template <class T>
void put(std::string& bytes, T value) {
  std::array<char, sizeof(T)> raw;
  std::memcpy(raw.data(), &value, sizeof(T));
  bytes.append(raw.data(), raw.size());
}

/// Cuts values off the front of bytes; nothing any more once they are too short for one.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  std::optional<T> take() {
    if (bytes_.size() < sizeof(T)) {
      bytes_ = {};
      return {};
    }
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

  std::optional<std::string_view> take_text() {
    const auto length = take<uint32_t>();
    if (!length || *length > bytes_.size()) return {};
    const std::string_view text = bytes_.substr(0, *length);
    bytes_.remove_prefix(*length);
    return text;
  }

  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

Status broken(std::string_view what) {
  return base::corrupt(fmt::format("control plane: {} that no client of ours sends", what));
}

}  // namespace

std::string to_bytes(const Request& request) {
  std::string bytes;
  put(bytes, static_cast<uint8_t>(request.operation));
  put(bytes, request.id);
  put(bytes, request.acknowledged);
  put(bytes, request.number);
  put(bytes, static_cast<uint32_t>(request.texts.size()));
  for (const std::string& text : request.texts) {
    put(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  return bytes;
}

std::string to_bytes(const Response& response) {
  std::string bytes;
  put(bytes, response.id);
  put(bytes, static_cast<uint8_t>(response.code));
  return bytes + response.text;
}

Result<Request> parse_request(std::string_view bytes) {
  Reader reader(bytes);
  const auto operation = reader.take<uint8_t>();
  const auto id = reader.take<uint64_t>();
  const auto acknowledged = reader.take<uint64_t>();
  const auto number = reader.take<int64_t>();
  const auto count = reader.take<uint32_t>();
  if (!count) return broken("a short request");
  if (*operation >= kNumOperations) return broken("an unknown request");
  const Bounds bounds = kTexts[*operation];
  if (*count < bounds.least || *count > bounds.most) return broken("a number of texts");
  Request request{static_cast<Operation>(*operation), *id, *acknowledged, *number, {}};
  for (uint32_t i = 0; i < *count; ++i) {
    const auto text = reader.take_text();
    if (!text) return broken("a length");
    request.texts.emplace_back(*text);
  }
  if (!reader.rest().empty()) return broken("a longer request");
  return request;
}

Result<Response> parse_response(std::string_view bytes) {
  Reader reader(bytes);
  const auto id = reader.take<uint64_t>();
  const auto code = reader.take<uint8_t>();
  if (!code || *code > static_cast<uint8_t>(Code::kInternal)) return broken("a response");
  return Response{*id, static_cast<Code>(*code), std::string(reader.rest())};
}

}  // namespace hanji::launch
