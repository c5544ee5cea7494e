// What arrives on the control plane's port: frames, requests, answers, what launchers store.
#include <algorithm>
#include <string>

#include "fuzz/input.h"
#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/channel.h"
#include "hanji/launch/control_plane/request.h"
#include "hanji/launch/control_plane/table.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/verdict.h"

namespace {

using namespace hanji;

/// Bytes of a stranger, before the proof and behind it.
void open_frames(std::string_view text) {
  const base::Digest key{};
  std::string input(text);
  uint64_t number = 0;
  while (true) {
    const size_t before = input.size();
    const auto content = launch::open_frame(key, number++, input);
    if (!content.ok() || !content->has_value()) break;
    fuzz::require(input.size() < before, "a frame is cut off what it came in");
  }
  input = launch::seal_frame(key, 7, text.substr(0, launch::kMaxFrameBytes));
  const auto content = launch::open_frame(key, 7, input);
  fuzz::require(content.ok() && content->has_value() && input.empty(), "a sealed frame opens");
}

/// Every request is answered or waits, and a table never grows beyond its bounds.
void ask(std::string_view text) {
  launch::Table table;
  for (uint64_t session = 1; !text.empty() && session < 64; ++session) {
    const size_t length = std::min(text.size(), size_t{1} + static_cast<unsigned char>(text[0]));
    const auto request = launch::parse_request(text.substr(0, length));
    text.remove_prefix(length);
    if (!request.ok()) continue;
    fuzz::require(*launch::parse_request(launch::to_bytes(*request)) == *request,
                  "a request reads back the same");
    for (const auto& reply : table.handle({session % 3, request->id}, *request)) {
      fuzz::require(reply.to.session < 3, "only who asked is answered");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  open_frames(text);
  ask(text);
  if (const auto request = launch::parse_request(text); request.ok()) {
    fuzz::require(launch::to_bytes(*request) == text, "a request is written as it was read");
    launch::Table table;
    (void)table.handle({1, request->id}, *request);
  }
  if (const auto response = launch::parse_response(text); response.ok()) {
    fuzz::require(launch::to_bytes(*response) == text, "an answer is written as it was read");
  }
  (void)launch::parse_verdict(text).ok();
  (void)launch::parse_node(text).ok();
  (void)launch::parse_hosts_file(text).ok();
  (void)launch::parse_token(text).ok();
  if (const auto place = base::parse_host_port(text); place.ok()) {
    fuzz::require(base::parse_host_port(base::to_text(*place)).ok(), "a place reads back");
  }
  return 0;
}
