#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hanji/launch/control_plane/request.h"

namespace hanji::launch {

/// The keys and values of the store, its barriers and who waits. Knows no sockets.
///
/// Order   one request at a time; those that wait are answered in the order in which they came.
/// Errors  in the Response: kInvalidArgument, kOutOfMemory; kTimeout to a cancelled request.
class Table {
 public:
  /// A request of a session.
  struct Ticket {
    uint64_t session = 0;
    uint64_t id = 0;
    bool operator==(const Ticket&) const = default;
  };
  struct Reply {
    Ticket to;
    Code code = Code::kOk;
    std::string text;
  };

  /// The replies that this request causes: its own, unless it waits, and those it lets go.
  std::vector<Reply> handle(Ticket from, const Request& request);
  /// Sets a key for the server itself; the replies that it lets go.
  std::vector<Reply> set(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const;
  /// Drops what a session waits for.
  void forget(uint64_t session);

  static constexpr size_t kMaxBytes = size_t{64} << 20;  ///< Of all keys and values.
  static constexpr size_t kMaxWaiting = 256;             ///< Requests of one session.

 private:
  struct Waiter {
    Ticket ticket;
    Operation operation = Operation::kWait;
    std::vector<std::string> names;  ///< Keys not set yet, or the barrier.
    int64_t index = 0;               ///< At the barrier.
    int64_t size = 0;
    bool left = false;  ///< It was here, for those who ask who is missing; it waits no more.
  };

  std::vector<Reply> wait(Waiter waiter);
  std::vector<Reply> arrive(Ticket from, const Request& request);
  std::vector<Reply> store(Ticket from, const std::string& key, std::string value,
                           std::string answer);
  std::vector<Reply> add(Ticket from, const Request& request);
  std::vector<Reply> compare_set(Ticket from, const Request& request);
  std::vector<Reply> cancel(Ticket from, uint64_t id);
  bool waits_at(const std::string& barrier) const;
  std::vector<Reply> release(const std::string& key);
  std::string missing_at(const Waiter& waiter) const;
  bool all_set(const std::vector<std::string>& keys) const;
  Status put(const std::string& key, std::string value);

  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;
  std::vector<Waiter> waiters_;
};

}  // namespace hanji::launch
