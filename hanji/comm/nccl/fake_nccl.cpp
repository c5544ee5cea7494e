// What libnccl.so is on a host with GPUs, for tests: ranks are threads of one process, buffers are
// plain memory, and every call is over when it returns. Faults are ordered by fake_nccl_*().
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kRemoteError = 6;
constexpr auto kPatience = std::chrono::seconds(20);

struct UniqueId {
  char bytes[128];
};

/// Ranks that share one id.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int arrived = 0;
  uint64_t generation = 0;
  bool aborted = false;
  std::vector<const void*> given;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;

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
    const auto over = [&] { return generation != now || aborted; };
    return changed.wait_for(lock, kPatience, over) && !aborted;
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

/// What group_end() has to do.
struct Pending {
  std::vector<std::function<int()>> first, then;
  int depth = 0;
};
thread_local Pending pending;

int start(bool early, std::function<int()> work) {
  if (pending.depth == 0) return work();
  (early ? pending.first : pending.then).push_back(std::move(work));
  return kSuccess;
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

/// All ranks give their input, `make` reads those, and only then outputs are written.
int collective(void* comm, const void* input, void* output,
               const std::function<std::vector<char>(const World&)>& make) {
  auto* mine = static_cast<Communicator*>(comm);
  World& world = *mine->world;
  {
    const std::lock_guard lock(world.mutex);
    world.given[mine->rank] = input;
  }
  if (!world.meet()) return kRemoteError;
  const std::vector<char> result = make(world);
  if (!world.meet()) return kRemoteError;
  if (!result.empty()) std::memcpy(output, result.data(), result.size());
  return kSuccess;
}

bool is_root(void* comm, int root) { return static_cast<Communicator*>(comm)->rank == root; }

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

int ncclCommGetAsyncError(void*, int* answer) {
  const int call = ordered("ncclCommGetAsyncError");
  const std::lock_guard lock(orders().mutex);
  *answer = orders().async_error;
  return call;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void*) {
  if (const int answer = ordered("ncclAllReduce")) return answer;
  return start(false, [=] {
    return collective(comm, in, out,
                      [=](const World& world) { return reduced(world, 0, count, type, op); });
  });
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void*) {
  if (const int answer = ordered("ncclBroadcast")) return answer;
  return start(false, [=] {
    return collective(comm, in, out, [=](const World& world) {
      const char* from = static_cast<const char*>(world.given[root]);
      return std::vector<char>(from, from + count * width_of(type));
    });
  });
}

int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* comm,
               void*) {
  if (const int answer = ordered("ncclReduce")) return answer;
  return start(false, [=] {
    return collective(comm, in, out, [=](const World& world) {
      return is_root(comm, root) ? reduced(world, 0, count, type, op) : std::vector<char>();
    });
  });
}

int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void*) {
  if (const int answer = ordered("ncclAllGather")) return answer;
  return start(false, [=] {
    return collective(comm, in, out, [=](const World& world) {
      std::vector<char> all;
      for (const void* given : world.given) {
        const char* from = static_cast<const char*>(given);
        all.insert(all.end(), from, from + count * width_of(type));
      }
      return all;
    });
  });
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm,
                      void*) {
  if (const int answer = ordered("ncclReduceScatter")) return answer;
  return start(false, [=] {
    const size_t begin = count * static_cast<Communicator*>(comm)->rank;
    return collective(comm, in, out,
                      [=](const World& world) { return reduced(world, begin, count, type, op); });
  });
}

int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void*) {
  if (const int answer = ordered("ncclSend")) return answer;
  return start(true, [=] {
    auto* mine = static_cast<Communicator*>(comm);
    const char* from = static_cast<const char*>(data);
    {
      const std::lock_guard lock(mine->world->mutex);
      mine->world->mail[{mine->rank, peer}].emplace_back(from, from + count * width_of(type));
    }
    mine->world->changed.notify_all();
    return kSuccess;
  });
}

int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void*) {
  if (const int answer = ordered("ncclRecv")) return answer;
  return start(false, [=] {
    auto* mine = static_cast<Communicator*>(comm);
    std::unique_lock lock(mine->world->mutex);
    auto& letters = mine->world->mail[{peer, mine->rank}];
    const auto there = [&] { return !letters.empty() || mine->world->aborted; };
    if (!mine->world->changed.wait_for(lock, kPatience, there) || letters.empty()) {
      return kRemoteError;
    }
    if (letters.front().size() != count * width_of(type)) return kInvalidArgument;
    std::memcpy(data, letters.front().data(), letters.front().size());
    letters.pop_front();
    return kSuccess;
  });
}

int ncclGroupStart() {
  ++pending.depth;
  return ordered("ncclGroupStart");
}

int ncclGroupEnd() {
  if (--pending.depth > 0) return kSuccess;
  Pending now;
  std::swap(now, pending);
  int answer = ordered("ncclGroupEnd");
  for (const auto* works : {&now.first, &now.then}) {
    for (const auto& work : *works) {
      if (answer == kSuccess) answer = work();
    }
  }
  return answer;
}

}  // extern "C"
