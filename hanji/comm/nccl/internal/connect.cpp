#include "hanji/comm/nccl/internal/connect.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <utility>

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

Parts connect_all(const Ground& ground, const Group& meet) {
  std::vector<int> all(meet.size());
  std::iota(all.begin(), all.end(), 0);
  const Group control = meet.subgroup(all, fmt::format("{} of NCCL", meet.name()));
  Parts parts = parts_on(ground, meet.rank(), meet.size());
  Status status;
  at::Tensor letter = meet.rank() == 0 ? write_id(*ground.library, status) : empty_letter();
  broadcast(letter, 0, control, {.label = "NCCL's unique id"}).wait();
  parts.comm = open_comm(parts, letter, status).or_throw();
  parts.tell = [control](at::Tensor& said, const at::Tensor& mine) {
    return all_gather(said, mine, control, {.label = "a call over NCCL"});
  };
  return parts;
}

}  // namespace hanji::comm::nccl
