#include "hanji/comm/nccl/internal/way.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/broadcast.h"

namespace hanji::comm::nccl {
namespace {

/// Whether somebody still waits for a communicator.
using Wanted = std::function<bool()>;

/// A byte over the new communicator: NCCL connects two ranks inside their first message, and blocks
/// the host until both have launched theirs.
Status send_first_byte(const Parts& parts, Comm comm, const Wanted& wanted) {
  const c10::DeviceGuard here(parts.device);
  const Api& api = parts.library->api();
  const at::Tensor byte = at::empty({1}, at::TensorOptions(at::kByte).device(parts.device));
  parts.stream->keep(byte);
  int answer = kSuccess;
  parts.stream->run([&] {
    void* stream = parts.stream->handle();
    answer = parts.rank == 0 ? api.send(byte.data_ptr(), 1, kUint8, 1, comm, stream)
                             : api.recv(byte.data_ptr(), 1, kUint8, 0, comm, stream);
  });
  HANJI_RETURN_IF_ERROR(parts.library->status(answer, "the first byte between two ranks", comm));
  const auto there = parts.stream->mark();
  while (!there->done()) {
    if (!wanted()) return base::cancelled("nobody waits for the connection");
    HANJI_RETURN_IF_ERROR(parts.library->status(api.async_error(comm, &answer), "", comm));
    HANJI_RETURN_IF_ERROR(parts.library->status(answer, "the first byte between two ranks", comm));
    std::this_thread::yield();
  }
  return {};
}

Result<Comm> open_way(const Parts& parts, const at::Tensor& letter, const Status& status,
                      const Wanted& wanted) {
  HANJI_ASSIGN_OR_RETURN(const Comm comm, open_comm(parts, letter, status));
  const Status connected = send_first_byte(parts, comm, wanted);
  if (connected.ok()) return comm;
  parts.library->api().abort(comm);
  return connected;
}

/// A communicator that a thread of its own opens once the id is there.
class Opening : public std::enable_shared_from_this<Opening> {
 public:
  Opening(Parts parts, at::Tensor letter, Work travelling, Status status)
      : parts_(std::move(parts)),
        letter_(std::move(letter)),
        travelling_(std::move(travelling)),
        status_(std::move(status)) {}
  ~Opening() {
    if (answer_ && answer_->ok()) parts_.library->api().abort(**answer_);
  }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  /// The communicator is the caller's from then on.
  std::optional<Result<Comm>> poll() {
    if (!begun_) {
      if (!travelling_.done()) return {};
      begun_ = true;
      // Nothing can stop a call inside NCCL, so nobody waits for this thread.
      std::thread(run, weak_from_this(), parts_, letter_, status_).detach();
    }
    const std::lock_guard lock(mutex_);
    return std::exchange(answer_, std::nullopt);
  }

 private:
  static void run(const std::weak_ptr<Opening>& asked, const Parts& parts, const at::Tensor& letter,
                  const Status& status) {
    std::optional<Result<Comm>> answer;
    try {
      answer = open_way(parts, letter, status, [&asked] { return !asked.expired(); });
    } catch (const std::exception& error) {
      answer = Result<Comm>(base::internal(fmt::format("NCCL: {}", error.what())));
    }
    if (const auto still = asked.lock()) {
      const std::lock_guard lock(still->mutex_);
      still->answer_ = std::move(answer);
    } else if (answer->ok()) {
      parts.library->api().abort(**answer);
    }
  }

  const Parts parts_;
  const at::Tensor letter_;
  Work travelling_;
  const Status status_;
  bool begun_ = false;
  std::mutex mutex_;
  std::optional<Result<Comm>> answer_;
};

}  // namespace

Parts connect_way(const Ground& ground, int sender, int receiver, const Group& meet) {
  const bool sends = meet.rank() == sender;
  const Group channel(meet.state()->connect()({sender, receiver}));
  Parts parts = parts_on(ground, sends ? 0 : 1, 2);
  const RankNames& names = meet.options().rank_names;
  parts.names = RankNames({names.of(sender), names.of(receiver)});
  Status status;
  at::Tensor letter = sends ? write_id(*ground.library, status) : empty_letter();
  Work travelling = broadcast(letter, 0, channel, {.label = "NCCL's unique id"});
  auto opening = std::make_shared<Opening>(parts, letter, std::move(travelling), status);
  parts.opening = [opening] { return opening->poll(); };
  parts.exchange = [channel](at::Tensor& said, const at::Tensor& mine,
                             std::chrono::nanoseconds deadline) {
    return all_gather(said, mine, channel, {.label = "a message over NCCL", .deadline = deadline});
  };
  return parts;
}

GroupState::Connect make_ways(const Ground& ground, const Group& meet, const GroupOptions& options,
                              const std::shared_ptr<GroupFamily>& family) {
  if (!meet.state()->connect()) return nullptr;
  using Kept = std::map<std::pair<int, int>, std::shared_ptr<GroupState>>;
  return [=, kept = std::make_shared<Kept>(),
          mutex = std::make_shared<std::mutex>()](const GroupState::Ends& ends) {
    const auto [sender, receiver] = std::pair(ends.sender, ends.receiver);
    const std::lock_guard lock(*mutex);
    auto& way = (*kept)[{sender, receiver}];
    if (way) return way;
    GroupOptions named = options;
    named.name = fmt::format("{} {}->{}", options.name, sender, receiver);
    auto engine = std::make_unique<NcclEngine>(connect_way(ground, sender, receiver, meet), named);
    way = GroupState::make(std::move(engine), meet.heap(), std::move(named), family, nullptr);
    return way;
  };
}

}  // namespace hanji::comm::nccl
