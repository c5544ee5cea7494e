#include "python/hanji_c10d/source/meet.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/comm/c10d/backend.h"
#include "hanji/launch/environment.h"
#include "hanji/world/connect.h"

namespace hanji::python {
namespace {

using StorePtr = c10::intrusive_ptr<::c10d::Store>;

/// Addresses for the buckets of DDP and whatever else asks the backend for memory. Groups are many
/// in Python, and the addresses of a process are not endless.
constexpr size_t kHeapBytes = size_t{16} << 30;
constexpr uint32_t kTraceEvents = 4096;

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string random_key() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(base::from_errno("draw a random key", errno));
  }
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

/// Ranks with equal places see each other's process ids, so they can share memory.
std::string place() {
  std::string boot = base::read_file("/proc/sys/kernel/random/boot_id").or_throw();
  boot.erase(boot.find_last_not_of('\n') + 1);
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid").string();
}

/// Keys of this meeting: ranks that met before on the same store must not find the old ones.
std::string prefix_of_meeting(const StorePtr& store, int size) {
  return fmt::format("hanji/{}/", (store->add("hanji/arrived", 1) - 1) / size);
}

/// What rank `rank` left under `key`, waited for.
std::string read(const StorePtr& store, const std::string& key, int rank,
                 std::chrono::milliseconds timeout) {
  try {
    store->wait({key}, timeout);
  } catch (const std::exception& error) {
    throw Error(base::timeout(
        fmt::format("rank {} did not come to the store within {} ms, so this group cannot meet; "
                    "start all ranks ({})",
                    rank, timeout.count(), error.what())));
  }
  const auto bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

void refuse_other_hosts(const StorePtr& store, const std::string& prefix, int rank, int size,
                        std::chrono::milliseconds timeout) {
  const std::string mine = place();
  store->set(fmt::format("{}place/{}", prefix, rank), bytes_of(mine));
  for (int other = 0; other < size; ++other) {
    const auto theirs = read(store, fmt::format("{}place/{}", prefix, other), other, timeout);
    if (theirs == mine) continue;
    throw Error(base::unsupported(
        fmt::format("ranks {} and {} run on different hosts or in different containers, and this "
                    "backend shares memory: run all ranks in one, or use backend \"gloo\"",
                    std::min(rank, other), std::max(rank, other))));
  }
}

}  // namespace

c10::intrusive_ptr<::c10d::Backend> meet(const StorePtr& store, int rank, int size,
                                         const MeetOptions& options) {
  launch::Identity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_size = size;
  if (size > 1) {
    const std::string prefix = prefix_of_meeting(store, size);
    if (rank == 0) store->set(prefix + "job", bytes_of(random_key()));
    refuse_other_hosts(store, prefix, rank, size, options.timeout);
    identity.job_id = "c10d " + read(store, prefix + "job", 0, options.timeout);
  }
  world::ConnectOptions connect;
  connect.group.name = options.name;
  connect.group.deadline = options.timeout;
  connect.group.progress = comm::Progress::kThread;
  connect.meet_deadline = options.timeout;
  connect.heap_bytes_per_rank = kHeapBytes;
  connect.trace_events = kTraceEvents;
  const auto world = std::make_shared<world::World>(world::connect_as(identity, connect));
  comm::c10d::BackendOptions backend;
  backend.timeout = options.timeout;
  backend.store = store;
  backend.owner = world;
  backend.meet = options.part;
  backend.abort = [weak = std::weak_ptr(world)](const Status& status) {
    if (const auto living = weak.lock()) living->fail(status);
  };
  return comm::c10d::make_backend(world->group(), std::move(backend));
}

}  // namespace hanji::python
