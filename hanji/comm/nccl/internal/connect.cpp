#include "hanji/comm/nccl/internal/connect.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/broadcast.h"

namespace hanji::comm::nccl {

at::Tensor empty_letter() { return at::zeros({1 + int64_t{sizeof(UniqueId)}}, at::kByte); }

at::Tensor write_id(const Library& library, Status& status) {
  UniqueId id{};
  status = library.status(library.api().unique_id(&id), "ncclGetUniqueId");
  at::Tensor letter = empty_letter();
  letter.data_ptr<uint8_t>()[0] = status.ok() ? 1 : 0;
  std::memcpy(letter.data_ptr<uint8_t>() + 1, &id, sizeof(id));
  return letter;
}

Result<Comm> open_comm(const Parts& parts, const at::Tensor& letter, const Status& status) {
  HANJI_RETURN_IF_ERROR(status);
  if (letter.const_data_ptr<uint8_t>()[0] == 0) {
    return base::peer_lost("the first rank could not make NCCL's unique id");
  }
  UniqueId id{};
  std::memcpy(&id, letter.const_data_ptr<uint8_t>() + 1, sizeof(id));
  const c10::DeviceGuard here(parts.device);
  Comm comm = nullptr;
  const int answer = parts.library->api().init_rank(&comm, parts.size, id, parts.rank);
  HANJI_RETURN_IF_ERROR(
      parts.library->status(answer, fmt::format("ncclCommInitRank on {}", parts.device.str())));
  return comm;
}

Parts parts_on(const Ground& ground, int rank, int size) {
  Parts parts{.device = ground.device};
  parts.library = ground.library;
  parts.stream = ground.new_stream();
  parts.rank = rank;
  parts.size = size;
  return parts;
}

namespace {

/// What the device still has to say of the first bytes.
Status await_first_bytes(Event& there, const Parts& parts, std::chrono::nanoseconds limit) {
  const auto deadline = base::Deadline::after(limit);
  const Library& library = *parts.library;
  while (!there.done()) {
    int answer = kSuccess;
    HANJI_RETURN_IF_ERROR(library.status(library.api().async_error(parts.comm, &answer),
                                         "ncclCommGetAsyncError", parts.comm));
    HANJI_RETURN_IF_ERROR(library.status(answer, "the first bytes between all ranks", parts.comm));
    if (deadline.passed()) {
      return base::timeout(fmt::format(
          "rank {} of {}: the first bytes between all ranks did not come within {} s; a rank may "
          "have died meanwhile, or its link: NCCL's own log says more",
          parts.rank, parts.size, std::chrono::duration<double>(limit).count()));
    }
    std::this_thread::yield();
  }
  return {};
}

/// A byte between any two ranks: NCCL connects them inside their first exchange, and holds the host
/// up until both have launched it. In a call, a rank that is held up launches nothing else, which
/// another may wait for.
Status connect_pairs(const Parts& parts, std::chrono::nanoseconds limit) {
  if (parts.size == 1) return {};
  const c10::DeviceGuard here(parts.device);
  const auto bytes = at::TensorOptions(at::kByte).device(parts.device);
  Request first{.routine = schedule::Routine::kAllToAll, .dtype = DType::kUInt8, .count = 1};
  first.input = at::zeros({parts.size}, bytes);
  first.output = at::empty({parts.size}, bytes);
  parts.stream->wait_for(*parts.stream->mark_current());
  parts.stream->keep(first.input);
  parts.stream->keep(first.output);
  const Channel channel{parts.library.get(), parts.comm, parts.stream->handle(), parts.rank,
                        parts.size};
  Status status;
  parts.stream->run([&] { status = launch_native(channel, first, nullptr); });
  return status.ok() ? await_first_bytes(*parts.stream->mark(), parts, limit) : status;
}

}  // namespace

Parts connect_all(const Ground& ground, const Group& meet) {
  std::vector<int> all(meet.size());
  std::iota(all.begin(), all.end(), 0);
  const Group control = meet.subgroup(all, fmt::format("{} of NCCL", meet.name()));
  Parts parts = parts_on(ground, meet.rank(), meet.size());
  Status status;
  at::Tensor letter = meet.rank() == 0 ? write_id(*ground.library, status) : empty_letter();
  broadcast(letter, 0, control, {.label = "NCCL's unique id"}).wait();
  parts.comm = open_comm(parts, letter, status).or_throw();
  if (const Status paired = connect_pairs(parts, meet.options().deadline); !paired.ok()) {
    ground.library->api().abort(parts.comm);
    throw Error(paired);
  }
  parts.exchange = [control](at::Tensor& said, const at::Tensor& mine,
                             std::chrono::nanoseconds deadline) {
    return all_gather(said, mine, control, {.label = "a call over NCCL", .deadline = deadline});
  };
  return parts;
}

}  // namespace hanji::comm::nccl
