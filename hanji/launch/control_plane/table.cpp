#include "hanji/launch/control_plane/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace hanji::launch {
namespace {

using Replies = std::vector<Table::Reply>;

Replies one(Table::Ticket to, std::string text) { return {{to, Code::kOk, std::move(text)}}; }
Replies refuse(Table::Ticket to, const Status& status) {
  return {{to, status.code(), status.message()}};
}

void append(Replies& all, Replies more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || error != std::errc() || end != last) return {};
  return value;
}

/// The start of a long list is enough for people.
std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 16;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

Replies Table::handle(Ticket from, const Request& request) {
  const std::vector<std::string>& texts = request.texts;
  switch (request.operation) {
    case Operation::kPing:
    case Operation::kGoodbye: return one(from, "");
    case Operation::kSet: return store(from, texts[0], texts[1], "");
    case Operation::kGet:
    case Operation::kWait: return wait({from, request.operation, texts, 0, 0, false});
    case Operation::kAdd: return add(from, request);
    case Operation::kAppend: {
      const std::string* old = find(texts[0]);
      std::string value = (old == nullptr ? "" : *old) + texts[1];
      std::string length = std::to_string(value.size());
      return store(from, texts[0], std::move(value), std::move(length));
    }
    case Operation::kCompareSet: return compare_set(from, request);
    case Operation::kCheck: return one(from, all_set(texts) ? "1" : "0");
    case Operation::kRemove: {
      const auto place = values_.find(texts[0]);
      if (place == values_.end()) return one(from, "0");
      bytes_ -= place->first.size() + place->second.size();
      values_.erase(place);
      return one(from, "1");
    }
    case Operation::kCount: return one(from, std::to_string(values_.size()));
    case Operation::kBarrier: return arrive(from, request);
    case Operation::kCancel: return cancel(from, static_cast<uint64_t>(request.number));
  }
  return refuse(from, base::internal("an operation without a case"));
}

Replies Table::set(const std::string& key, std::string value) {
  if (!put(key, std::move(value)).ok()) return {};
  return release(key);
}

const std::string* Table::find(const std::string& key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

/// Who took its request back and left is no more missing than before, as long as others ask.
void Table::forget(uint64_t session) {
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    return waiter.ticket.session == session && !waiter.left;
  });
  std::set<std::string> awaited;
  for (const Waiter& waiter : waiters_) {
    if (!waiter.left) awaited.insert(waiter.names[0]);
  }
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    return waiter.left && !awaited.contains(waiter.names[0]);
  });
}

Status Table::put(const std::string& key, std::string value) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return base::invalid_argument(
        fmt::format("a key of {} bytes with a value of {} is too large for the store: at most {} "
                    "and {}; send data through a group",
                    key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes));
  }
  const auto place = values_.find(key);
  const size_t before = place == values_.end() ? 0 : key.size() + place->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > kMaxBytes) {
    return base::out_of_memory(
        fmt::format("the store holds {} bytes, at most {}: remove keys that are read, or send data "
                    "through a group",
                    bytes_, kMaxBytes));
  }
  bytes_ = after;
  values_.insert_or_assign(key, std::move(value));
  return {};
}

Replies Table::store(Ticket from, const std::string& key, std::string value, std::string answer) {
  const Status status = put(key, std::move(value));
  if (!status.ok()) return refuse(from, status);
  Replies replies = one(from, std::move(answer));
  append(replies, release(key));
  return replies;
}

Replies Table::add(Ticket from, const Request& request) {
  const std::string& key = request.texts[0];
  const std::string* old = find(key);
  const auto number = old == nullptr ? std::optional<int64_t>(0) : number_in(*old);
  int64_t sum = 0;
  if (!number || __builtin_add_overflow(*number, request.number, &sum)) {
    return refuse(from, base::invalid_argument(
                            fmt::format("add {} to key '{}': its value is {}", request.number, key,
                                        number ? "too large" : "no decimal number")));
  }
  return store(from, key, std::to_string(sum), std::to_string(sum));
}

Replies Table::compare_set(Ticket from, const Request& request) {
  const std::string& key = request.texts[0];
  const std::string& expected = request.texts[1];
  const std::string* old = find(key);
  if (old != nullptr && *old != expected) return one(from, *old);
  if (old == nullptr && !expected.empty()) return one(from, expected);
  return store(from, key, request.texts[2], request.texts[2]);
}

Replies Table::wait(Waiter waiter) {
  const auto is_set = [&](const std::string& key) { return find(key) != nullptr; };
  const Ticket from = waiter.ticket;
  if (all_set(waiter.names)) {
    return one(from, waiter.operation == Operation::kGet ? *find(waiter.names[0]) : "");
  }
  const auto waiting = std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& other) {
    return other.ticket.session == from.session;
  });
  if (static_cast<size_t>(waiting) >= kMaxWaiting) {
    return refuse(
        from, base::out_of_memory(fmt::format(
                  "{} calls of this process wait in the store; wait with fewer threads", waiting)));
  }
  std::erase_if(waiter.names, is_set);
  waiters_.push_back(std::move(waiter));
  return {};
}

/// Everybody whose last missing key this is.
Replies Table::release(const std::string& key) {
  Replies replies;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    if (waiter.operation == Operation::kBarrier) return false;
    std::erase(waiter.names, key);
    if (!waiter.names.empty()) return false;
    append(replies, one(waiter.ticket, waiter.operation == Operation::kGet ? *find(key) : ""));
    return true;
  });
  return replies;
}

Replies Table::arrive(Ticket from, const Request& request) {
  const std::string& name = request.texts[0];
  Waiter waiter{
      from, Operation::kBarrier, {name}, request.number & 0xFFFFFFFF, request.number >> 32};
  const auto bad = [&](const std::string& why) {
    return refuse(from, base::invalid_argument(fmt::format("barrier '{}': {}", name, why)));
  };
  if (waiter.index >= waiter.size) {
    return bad(fmt::format("index {} of {}", waiter.index, waiter.size));
  }
  std::vector<Ticket> waiting;
  for (const Waiter& other : waiters_) {
    if (other.operation != Operation::kBarrier || other.names[0] != name || other.left) continue;
    if (other.size != waiter.size) {
      return bad(fmt::format("index {} counts {} members, index {} counts {}", waiter.index,
                             waiter.size, other.index, other.size));
    }
    if (other.index == waiter.index) return bad(fmt::format("index {} came twice", waiter.index));
    waiting.push_back(other.ticket);
  }
  std::erase_if(waiters_, [&](const Waiter& other) {
    return other.left && other.names[0] == name && other.index == waiter.index;
  });
  if (static_cast<int64_t>(waiting.size()) + 1 < waiter.size) {
    waiters_.push_back(std::move(waiter));
    return {};
  }
  std::erase_if(waiters_, [&](const Waiter& other) {
    return other.operation == Operation::kBarrier && other.names[0] == name;
  });
  Replies replies = one(from, "");
  for (const Ticket& ticket : waiting) append(replies, one(ticket, ""));
  return replies;
}

std::string Table::missing_at(const Waiter& waiter) const {
  if (waiter.operation != Operation::kBarrier) return list_of(waiter.names);
  std::set<int64_t> come;
  for (const Waiter& other : waiters_) {
    const bool here = other.operation == Operation::kBarrier && other.names == waiter.names;
    if (here) come.insert(other.index);
  }
  constexpr size_t kEnough = 64;
  std::vector<std::string> absent;
  for (int64_t index = 0; index < waiter.size && absent.size() < kEnough; ++index) {
    if (!come.contains(index)) absent.push_back(std::to_string(index));
  }
  return list_of(absent);
}

/// The waiting request gets kTimeout with what is missing; the cancel itself only an ok.
Replies Table::cancel(Ticket from, uint64_t id) {
  Replies replies = one(from, "");
  const Ticket target{from.session, id};
  const auto place = std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    return waiter.ticket == target && !waiter.left;
  });
  if (place == waiters_.end()) return replies;
  replies.push_back({target, Code::kTimeout, missing_at(*place)});
  if (place->operation != Operation::kBarrier) {
    waiters_.erase(place);
    return replies;
  }
  place->left = true;
  const std::string name = place->names[0];
  if (!waits_at(name)) {
    std::erase_if(waiters_, [&](const Waiter& waiter) {
      return waiter.operation == Operation::kBarrier && waiter.names[0] == name;
    });
  }
  return replies;
}

bool Table::waits_at(const std::string& barrier) const {
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    return waiter.operation == Operation::kBarrier && waiter.names[0] == barrier && !waiter.left;
  });
}

bool Table::all_set(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return find(key) != nullptr; });
}

}  // namespace hanji::launch
