#include "hanji/shm/message_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "hanji/base/clock.h"
#include "hanji/base/text.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {

using internal::MessageWaitWords;

namespace {

/// "0-3,8": ranks in a row are one part.
std::string describe_ranks(std::span<const int> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    std::string part = text.empty() ? "" : ",";
    part += std::to_string(ranks[i]);
    if (end - i > 1) part += "-" + std::to_string(ranks[end - 1]);
    if (text.size() + part.size() >= MessageGroup::kRanksBytes) break;
    text += part;
    i = end;
  }
  return text;
}

/// Foreign bytes: what is no number ends the list.
std::vector<int> parse_ranks(std::string_view text) {
  constexpr int kMaxRanks = 4096;
  std::vector<int> ranks;
  for (const std::string_view part : base::split(text, ',')) {
    int first = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    if (error != std::errc()) break;
    int last = first;
    if (rest != part.data() + part.size() &&
        std::from_chars(rest + 1, part.data() + part.size(), last).ec != std::errc()) {
      break;
    }
    for (int rank = first; rank <= last && std::ssize(ranks) < kMaxRanks; ++rank)
      ranks.push_back(rank);
  }
  return ranks;
}

std::string text_at(std::span<const uint64_t> words, size_t begin, size_t bytes) {
  const char* text = reinterpret_cast<const char*>(words.data()) + begin;
  return {text, ::strnlen(text, bytes)};
}

enum Word : size_t { kWhat, kRoot, kTag, kCount, kOperation, kGroup };
constexpr int kDTypeShift = 8, kOpShift = 16, kReceivesShift = 24, kSiteShift = 32;

MessageWaitWords::Words encode_message(const MessageGroup& group, const MessageCall& call) {
  MessageWaitWords::Words words{};
  words[kWhat] = static_cast<uint64_t>(call.routine) |
                 static_cast<uint64_t>(call.dtype) << kDTypeShift |
                 static_cast<uint64_t>(call.op) << kOpShift |
                 static_cast<uint64_t>(call.receives) << kReceivesShift |
                 static_cast<uint64_t>(call.call_site) << kSiteShift;
  words[kRoot] = static_cast<uint64_t>(call.root);
  words[kTag] = call.tag;
  words[kCount] = static_cast<uint64_t>(call.count);
  words[kOperation] = call.operation;
  std::ranges::copy(group.words(), words.begin() + kGroup);
  return words;
}

MessageWait decode_message(const MessageWaitWords::Words& words) {
  MessageWait wait;
  wait.call = {.routine = static_cast<schedule::Routine>(words[kWhat] & 0xff),
               .dtype = static_cast<DType>(words[kWhat] >> kDTypeShift & 0xff),
               .op = static_cast<schedule::ReduceOp>(words[kWhat] >> kOpShift & 0xff),
               .receives = (words[kWhat] >> kReceivesShift & 0xff) != 0,
               .call_site = static_cast<uint32_t>(words[kWhat] >> kSiteShift),
               .root = static_cast<int>(words[kRoot]),
               .tag = words[kTag],
               .count = static_cast<int64_t>(words[kCount]),
               .operation = words[kOperation]};
  const auto group = wait.group.words();
  std::copy_n(words.begin() + kGroup, group.size(), group.begin());
  return wait;
}

}  // namespace

MessageGroup::MessageGroup(std::string_view name, std::span<const int> ranks) {
  char* text = reinterpret_cast<char*>(words_.data());
  std::memcpy(text, name.data(), std::min(name.size(), kNameBytes - 1));
  const std::string numbers = describe_ranks(ranks);
  std::memcpy(text + kNameBytes, numbers.data(), numbers.size());
}

std::string MessageGroup::name() const { return text_at(words_, 0, kNameBytes); }

std::vector<int> MessageGroup::ranks() const {
  return parse_ranks(text_at(words_, kNameBytes, kRanksBytes));
}

void begin_message_wait(const Segment& segment, int rank, const MessageGroup& group,
                        const MessageCall& call) {
  MessageWaitWords& to = segment.rank_state(rank).message_wait;
  const auto words = encode_message(group, call);
  const uint64_t before = to.version.load(std::memory_order_relaxed);
  to.version.store(before + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < words.size(); ++i) {
    to.words[i].store(words[i], std::memory_order_release);
  }
  to.since_ns.store(base::now_ns(), std::memory_order_release);
  to.version.store(before + 2, std::memory_order_release);
}

void end_message_wait(const Segment& segment, int rank) {
  segment.rank_state(rank).message_wait.since_ns.store(0, std::memory_order_release);
}

std::optional<MessageWait> read_message_wait(const MessageWaitWords& from) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = from.version.load(std::memory_order_acquire);
    if (before == 0) return {};
    MessageWaitWords::Words words;
    for (size_t w = 0; w < words.size(); ++w) {
      words[w] = from.words[w].load(std::memory_order_acquire);
    }
    const int64_t since = from.since_ns.load(std::memory_order_acquire);
    if (before % 2 != 0 || from.version.load(std::memory_order_relaxed) != before) continue;
    MessageWait wait = decode_message(words);
    if (since != 0) wait.since_ns = since;
    return wait;
  }
  return {};
}

}  // namespace hanji::shm
