#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/token.h"

namespace hanji::launch {

class Client;

/// Who connects to the control plane.
enum class Role : uint32_t {
  kLauncher,  ///< The launcher of one host; its index is the node's.
  kRank,      ///< A rank; its index is the one among all ranks.
};

struct StoreOptions {
  base::HostPort server;
  Token token{};
  Role role = Role::kRank;
  int index = 0;
  int world_size = 0;  ///< Of a rank: all ranks. Of a launcher: 0, it is not known yet.
  int num_nodes = 1;
  std::string build_id;  ///< Must be the same for all of a role.
  std::string source;    ///< Own address to connect from; empty: the route decides.
  base::Deadline deadline = base::Deadline::after(std::chrono::seconds(60));  ///< To connect.
  std::chrono::milliseconds silence{15'000};  ///< So long the other side may say nothing.
  /// Called once, from a thread of the store, when the server is lost for good; must not block.
  std::function<void(const Status&)> on_lost;
};

/// Keys and values that every rank of every host reaches: where engines between hosts exchange
/// their addresses. A connection to the server on node 0, authenticated both ways, that survives a
/// reset or a partition shorter than `silence`: every call takes effect once.
///
/// Units   a key of at most 8 KiB, a value of at most 1 MiB, 64 MiB in all.
/// Order   a call has taken effect when it returns; what it wrote is seen by every call after it.
/// Cost    one round trip; the server handles one call at a time.
/// Errors  kPeerLost once the server is lost; kTimeout naming what did not come; kInvalidArgument
///         and kOutOfMemory for what is too large.
/// Thread  any; calls of several threads wait beside each other.
class Store {
 public:
  /// Tries until the deadline while nobody listens there yet.
  /// Errors  kTimeout; kMismatch if the server refuses this rank's index, world or build (its
  ///         words), or if either side does not know the token.
  static Result<std::shared_ptr<Store>> connect(StoreOptions options);
  /// Says goodbye: this end is no loss to anybody.
  ~Store();

  Status set(const std::string& key, const std::string& value);
  /// Waits until somebody has set the key.
  Result<std::string> get(const std::string& key, base::Deadline deadline);
  /// Calls `watcher` with the key's value once it is set, on a thread of the store; it must not wait
  /// for the store there.
  void watch(const std::string& key, std::function<void(const std::string&)> watcher);
  /// The same for several keys.
  void watch_all(std::vector<std::string> keys, std::function<void()> watcher);
  /// Sets the key if there is none, at some time after this call, which does not wait.
  void propose(const std::string& key, const std::string& value);
  /// Adds to a decimal number, 0 before; gives the sum.
  /// Errors  kInvalidArgument if the value is no number, or the sum leaves int64.
  Result<int64_t> add(const std::string& key, int64_t amount);
  /// Appends to a value, empty before; gives the length after it.
  Result<int64_t> append(const std::string& key, const std::string& value);
  /// Replaces the value if it is `expected`, or sets it if there is none and `expected` is empty.
  /// Gives what the key holds then; where it holds nothing, `expected`.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);
  /// Waits until all keys are set. Errors: kTimeout names those that are not.
  Status wait(std::span<const std::string> keys, base::Deadline deadline);
  /// True if all keys are set.
  Result<bool> check(std::span<const std::string> keys);
  /// True if there was such a key.
  Result<bool> remove(const std::string& key);
  Result<int64_t> num_keys();
  /// Waits until `size` members with different indices wait at the barrier of this name; it can be
  /// used again. Errors: kTimeout names the indices that did not come, and takes this one back.
  Status barrier(const std::string& name, int index, int size, base::Deadline deadline);

  /// The own address of the connection: the interface that leads to the other hosts.
  const std::string& local_address() const;

 private:
  explicit Store(std::unique_ptr<Client> client);
  std::unique_ptr<Client> client_;
};

}  // namespace hanji::launch
