// What libnccl.so is on a host with GPUs, for tests: ranks are threads of one process and buffers
// plain memory. Calls on a stream of fake_stream.h run there in order, one after another, while the
// host goes on; those on no stream are over when they return. As on a device, a send is over when it
// was received, a group is one kernel, and two ranks connect inside their first message.
// Faults are ordered by fake_nccl_*().
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "hanji/comm/nccl/internal/fake_stream.h"

namespace {

using hanji::comm::nccl::fake::Stream;

constexpr int kSuccess = 0, kInvalidArgument = 4, kRemoteError = 6;
constexpr auto kPatience = std::chrono::seconds(20);

struct UniqueId {
  char bytes[128];
};

/// A message that its sender offers until it is taken.
struct Offer {
  const char* data;
  size_t bytes;
  bool taken = false;
};

using Pair = std::pair<int, int>;  // sender, receiver

/// Ranks that share one id.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int arrived = 0;
  uint64_t generation = 0;
  bool aborted = false;
  bool failed = false;
  std::vector<const void*> given;
  std::map<Pair, std::deque<std::shared_ptr<Offer>>> offers;
  std::set<Pair> senders, receivers;  // that have begun to connect

  /// Waits until `over`; false if it does not come to that.
  template <class Over>
  bool wait(std::unique_lock<std::mutex>& lock, const Over& over) {
    return changed.wait_for(lock, kPatience, [&] { return over() || aborted; }) && !aborted;
  }

  /// False if not all ranks came.
  bool meet() {
    std::unique_lock lock(mutex);
    const uint64_t now = generation;
    if (++arrived == size) {
      arrived = 0;
      ++generation;
      changed.notify_all();
      return !aborted;
    }
    return wait(lock, [&] { return generation != now; });
  }
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
};

struct Orders {
  std::mutex mutex;
  std::map<std::string, int> answers;  // by call
  std::map<std::string, int> counts;
  std::map<std::string, std::weak_ptr<World>> worlds;
  int ids = 0;
  int async_error = kSuccess;
  int version = 22703;
};

Orders& orders() {
  static Orders all;
  return all;
}

/// Counts a call; what it was ordered to answer.
int ordered(const char* call) {
  Orders& all = orders();
  const std::lock_guard lock(all.mutex);
  ++all.counts[call];
  const auto found = all.answers.find(call);
  return found == all.answers.end() ? kSuccess : found->second;
}

/// A call of a communicator, to be carried out in the order of a stream.
struct Op {
  Communicator at;
  Stream* stream = nullptr;
  std::function<int()> collective = {};  // else a message
  Pair ends = {};
  char* data = nullptr;
  size_t bytes = 0;
  bool sending = false;
};

/// As NCCL does when two ranks first exchange something: the host waits until both have launched.
int connect(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    if (op.collective) continue;
    const std::lock_guard lock(op.at.world->mutex);
    (op.sending ? op.at.world->senders : op.at.world->receivers).insert(op.ends);
    op.at.world->changed.notify_all();
  }
  for (const Op& op : ops) {
    if (op.collective) continue;
    World& world = *op.at.world;
    std::unique_lock lock(world.mutex);
    const auto both = [&] { return world.senders.count(op.ends) + world.receivers.count(op.ends); };
    if (!world.wait(lock, [&] { return both() == 2; })) return kRemoteError;
  }
  return kSuccess;
}

int receive(const Op& op) {
  World& world = *op.at.world;
  std::unique_lock lock(world.mutex);
  auto& offers = world.offers[op.ends];
  if (!world.wait(lock, [&] { return !offers.empty(); })) return kRemoteError;
  const auto offer = offers.front();
  if (offer->bytes != op.bytes) return kInvalidArgument;
  std::memcpy(op.data, offer->data, offer->bytes);
  offer->taken = true;
  offers.pop_front();
  world.changed.notify_all();
  return kSuccess;
}

/// Calls of one group are one kernel: its messages are all under way at once, and it is over when
/// all are. A send is over when it has been received.
int run_kernel(const std::vector<Op>& ops) {
  std::vector<std::pair<World*, std::shared_ptr<Offer>>> offered;
  for (const Op& op : ops) {
    if (op.collective || !op.sending) continue;
    const std::lock_guard lock(op.at.world->mutex);
    offered.emplace_back(op.at.world.get(), std::make_shared<Offer>(Offer{op.data, op.bytes}));
    op.at.world->offers[op.ends].push_back(offered.back().second);
    op.at.world->changed.notify_all();
  }
  int answer = kSuccess;
  for (const Op& op : ops) {
    if (answer == kSuccess && op.collective) answer = op.collective();
    if (answer == kSuccess && !op.collective && !op.sending) answer = receive(op);
  }
  for (const auto& [world, offer] : offered) {
    std::unique_lock lock(world->mutex);
    if (!world->wait(lock, [&] { return offer->taken; })) answer = kRemoteError;
  }
  return answer;
}

/// Host first, then the stream; without a stream all of it at once.
int launch(std::vector<Op> ops) {
  if (ops.empty()) return kSuccess;
  if (const int answer = connect(ops)) return answer;
  Stream* stream = ops.front().stream;
  if (stream == nullptr) return run_kernel(ops);
  stream->add([ops = std::move(ops)] {
    if (run_kernel(ops) == kSuccess) return;
    const std::lock_guard lock(ops.front().at.world->mutex);
    ops.front().at.world->failed = true;
  });
  return kSuccess;
}

struct Open {
  std::vector<Op> ops;
  int depth = 0;
};
thread_local Open open_group;

int start(Op op) {
  if (open_group.depth == 0) return launch({std::move(op)});
  open_group.ops.push_back(std::move(op));
  return kSuccess;
}

Op op_at(void* comm, void* stream) {
  return {.at = *static_cast<Communicator*>(comm), .stream = static_cast<Stream*>(stream)};
}

size_t width_of(int type) {
  constexpr size_t kWidths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kWidths[type];
}

template <class T>
T combined(int op, T left, T right) {
  switch (op) {
    case 1: return static_cast<T>(left * right);
    case 2: return std::max(left, right);
    case 3: return std::min(left, right);
    default: return static_cast<T>(left + right);
  }
}

/// Elements [begin, begin + count) of all ranks' inputs.
template <class T>
std::vector<char> reduced(const World& world, size_t begin, size_t count, int op) {
  std::vector<char> bytes(count * sizeof(T));
  auto* result = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(world.given[0])[begin + i];
    for (int rank = 1; rank < world.size; ++rank) {
      value = combined<T>(op, value, static_cast<const T*>(world.given[rank])[begin + i]);
    }
    result[i] = op == 4 ? static_cast<T>(value / static_cast<T>(world.size)) : value;
  }
  return bytes;
}

std::vector<char> reduced(const World& world, size_t begin, size_t count, int type, int op) {
  switch (type) {
    case 0: return reduced<int8_t>(world, begin, count, op);
    case 1: return reduced<uint8_t>(world, begin, count, op);
    case 2: return reduced<int32_t>(world, begin, count, op);
    case 4: return reduced<int64_t>(world, begin, count, op);
    case 6: return reduced<c10::Half>(world, begin, count, op);
    case 7: return reduced<float>(world, begin, count, op);
    case 8: return reduced<double>(world, begin, count, op);
    default: return reduced<c10::BFloat16>(world, begin, count, op);
  }
}

using Make = std::function<std::vector<char>(const World&, int rank)>;

/// All ranks give their input, `make` reads those, and only then outputs are written.
int meet_and_make(const Communicator& mine, const void* input, void* output, const Make& make) {
  World& world = *mine.world;
  {
    const std::lock_guard lock(world.mutex);
    world.given[mine.rank] = input;
  }
  if (!world.meet()) return kRemoteError;
  const std::vector<char> result = make(world, mine.rank);
  if (!world.meet()) return kRemoteError;
  if (!result.empty()) std::memcpy(output, result.data(), result.size());
  return kSuccess;
}

int collective(Op op, const void* input, void* output, Make make) {
  op.collective = [at = op.at, input, output, make = std::move(make)] {
    return meet_and_make(at, input, output, make);
  };
  return start(std::move(op));
}

/// What hanji looks for in NCCL's log.
void write_log(int rank) {
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  if (file == nullptr) return;
  std::ofstream(file, std::ios::app) << "NCCL INFO rank " << rank << " Init COMPLETE\n";
}

}  // namespace

extern "C" {

void fake_nccl_answer(const char* call, int answer) {
  const std::lock_guard lock(orders().mutex);
  answer == kSuccess ? void(orders().answers.erase(call)) : void(orders().answers[call] = answer);
}
int fake_nccl_count(const char* call) {
  const std::lock_guard lock(orders().mutex);
  return orders().counts[call];
}
void fake_nccl_async_error(int answer) {
  const std::lock_guard lock(orders().mutex);
  orders().async_error = answer;
}
void fake_nccl_version(int version) {
  const std::lock_guard lock(orders().mutex);
  orders().version = version;
}

int ncclGetVersion(int* version) {
  const std::lock_guard lock(orders().mutex);
  *version = orders().version;
  return kSuccess;
}

const char* ncclGetErrorString(int answer) {
  return answer == kSuccess ? "no error" : answer == kRemoteError ? "remote process exited" : "bad";
}
const char* ncclGetLastError(void*) { return "as the test ordered"; }

int ncclGetUniqueId(UniqueId* id) {
  const int answer = ordered("ncclGetUniqueId");
  const std::lock_guard lock(orders().mutex);
  const std::string text = "fake " + std::to_string(++orders().ids);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes, text.data(), text.size());
  return answer;
}

int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  if (const int answer = ordered("ncclCommInitRank")) return answer;
  auto mine = std::make_unique<Communicator>();
  mine->rank = rank;
  {
    const std::lock_guard lock(orders().mutex);
    auto& kept = orders().worlds[id.bytes];
    mine->world = kept.lock();
    if (!mine->world) {
      mine->world = std::make_shared<World>();
      mine->world->size = size;
      mine->world->given.resize(size);
      kept = mine->world;
    }
  }
  if (mine->world->size != size || rank < 0 || rank >= size) return kInvalidArgument;
  if (!mine->world->meet()) return kRemoteError;
  write_log(rank);
  *comm = mine.release();
  return kSuccess;
}

int ncclCommDestroy(void* comm) {
  delete static_cast<Communicator*>(comm);
  return ordered("ncclCommDestroy");
}

int ncclCommAbort(void* comm) {
  auto* mine = static_cast<Communicator*>(comm);
  {
    const std::lock_guard lock(mine->world->mutex);
    mine->world->aborted = true;
  }
  mine->world->changed.notify_all();
  delete mine;
  return ordered("ncclCommAbort");
}

int ncclCommGetAsyncError(void* comm, int* answer) {
  const int call = ordered("ncclCommGetAsyncError");
  World& world = *static_cast<Communicator*>(comm)->world;
  const std::scoped_lock lock(orders().mutex, world.mutex);
  *answer = world.failed ? kRemoteError : orders().async_error;
  return call;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm,
                  void* stream) {
  if (const int answer = ordered("ncclAllReduce")) return answer;
  return collective(op_at(comm, stream), in, out,
                    [=](const World& world, int) { return reduced(world, 0, count, type, op); });
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm,
                  void* stream) {
  if (const int answer = ordered("ncclBroadcast")) return answer;
  return collective(op_at(comm, stream), in, out, [=](const World& world, int) {
    const char* from = static_cast<const char*>(world.given[root]);
    return std::vector<char>(from, from + count * width_of(type));
  });
}

int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* comm,
               void* stream) {
  if (const int answer = ordered("ncclReduce")) return answer;
  return collective(op_at(comm, stream), in, out, [=](const World& world, int rank) {
    return rank == root ? reduced(world, 0, count, type, op) : std::vector<char>();
  });
}

int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  if (const int answer = ordered("ncclAllGather")) return answer;
  return collective(op_at(comm, stream), in, out, [=](const World& world, int) {
    std::vector<char> all;
    for (const void* given : world.given) {
      const char* from = static_cast<const char*>(given);
      all.insert(all.end(), from, from + count * width_of(type));
    }
    return all;
  });
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm,
                      void* stream) {
  if (const int answer = ordered("ncclReduceScatter")) return answer;
  return collective(op_at(comm, stream), in, out, [=](const World& world, int rank) {
    return reduced(world, count * rank, count, type, op);
  });
}

int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  if (const int answer = ordered("ncclSend")) return answer;
  Op op = op_at(comm, stream);
  op.sending = true;
  op.ends = {op.at.rank, peer};
  op.data = static_cast<char*>(const_cast<void*>(data));
  op.bytes = count * width_of(type);
  return start(std::move(op));
}

int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  if (const int answer = ordered("ncclRecv")) return answer;
  Op op = op_at(comm, stream);
  op.ends = {peer, op.at.rank};
  op.data = static_cast<char*>(data);
  op.bytes = count * width_of(type);
  return start(std::move(op));
}

int ncclGroupStart() {
  ++open_group.depth;
  return ordered("ncclGroupStart");
}

int ncclGroupEnd() {
  if (--open_group.depth > 0) return kSuccess;
  std::vector<Op> ops;
  std::swap(ops, open_group.ops);
  const int answer = ordered("ncclGroupEnd");
  return answer == kSuccess ? launch(std::move(ops)) : answer;
}

}  // extern "C"
