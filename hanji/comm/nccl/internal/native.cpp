#include "hanji/comm/nccl/internal/native.h"

#include <fmt/format.h>

#include <vector>

namespace hanji::comm::nccl {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAvg: return kAvg;
    case ReduceOp::kMin: return kMin;
    case ReduceOp::kMax: return kMax;
    case ReduceOp::kProd: return kProd;
    default: return kSum;
  }
}

std::byte* address_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

/// What goes to a rank or comes from it.
struct Block {
  std::byte* data = nullptr;
  int64_t count = 0;
};

/// One request on its way into NCCL.
class Launch {
 public:
  Launch(const Channel& channel, const Request& request)
      : channel_(channel),
        api_(channel.library->api()),
        request_(request),
        type_(type_of(request.dtype)),
        input_(address_of(request.input)),
        output_(address_of(request.output)) {}

  Status run();

 private:
  Status says(int answer, const char* call) const {
    return channel_.library->status(answer, call, channel_.comm);
  }
  bool even() const { return request_.counts.empty(); }
  /// Elements that rank `from` gives to rank `to`.
  int64_t share(int from, int to) const;
  /// Blocks of all ranks one after another in `data`; `given` ones go to the ranks.
  std::vector<Block> row(std::byte* data, bool given) const;
  std::vector<Block> only(int rank, Block block) const;
  Status exchange(const std::vector<Block>& given, const std::vector<Block>& taken) const;
  Status uneven_reduce_scatter() const;
  Status gather() const;
  Status scatter() const;
  Status message() const;

  const Channel& channel_;
  const Api& api_;
  const Request& request_;
  const Type type_;
  std::byte* const input_;
  std::byte* const output_;
};

int64_t Launch::share(int from, int to) const {
  if (even()) return request_.count;
  switch (request_.routine) {
    case Routine::kAllToAll: return request_.counts[from * channel_.size + to];
    case Routine::kScatter:
    case Routine::kReduceScatter: return request_.counts[to];
    default: return request_.counts[from];
  }
}

std::vector<Block> Launch::row(std::byte* data, bool given) const {
  std::vector<Block> blocks(channel_.size);
  const auto width = static_cast<int64_t>(base::size_of(request_.dtype));
  int64_t begin = 0;
  for (int peer = 0; peer < channel_.size; ++peer) {
    const int64_t count = given ? share(channel_.rank, peer) : share(peer, channel_.rank);
    blocks[peer] = {data + begin * width, count};
    begin += count;
  }
  return blocks;
}

std::vector<Block> Launch::only(int rank, Block block) const {
  std::vector<Block> blocks(channel_.size);
  blocks[rank] = block;
  return blocks;
}

Status Launch::exchange(const std::vector<Block>& given, const std::vector<Block>& taken) const {
  HANJI_RETURN_IF_ERROR(says(api_.group_start(), "ncclGroupStart"));
  Status status;
  for (int peer = 0; peer < channel_.size && status.ok(); ++peer) {
    const bool stays = peer == channel_.rank && given[peer].data == taken[peer].data;
    if (given[peer].count > 0 && !stays) {
      status = says(api_.send(given[peer].data, given[peer].count, type_, peer, channel_.comm,
                              channel_.stream),
                    "ncclSend");
    }
    if (status.ok() && taken[peer].count > 0 && !stays) {
      status = says(api_.recv(taken[peer].data, taken[peer].count, type_, peer, channel_.comm,
                              channel_.stream),
                    "ncclRecv");
    }
  }
  const Status ended = says(api_.group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

Status Launch::uneven_reduce_scatter() const {
  HANJI_RETURN_IF_ERROR(says(api_.group_start(), "ncclGroupStart"));
  Status status;
  const auto blocks = row(input_, true);
  for (int owner = 0; owner < channel_.size && status.ok(); ++owner) {
    if (blocks[owner].count == 0) continue;
    status = says(api_.reduce(blocks[owner].data, output_, blocks[owner].count, type_,
                              op_of(request_.op), owner, channel_.comm, channel_.stream),
                  "ncclReduce");
  }
  const Status ended = says(api_.group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

Status Launch::gather() const {
  const bool root = channel_.rank == request_.root;
  const Block mine{input_, share(channel_.rank, request_.root)};
  return exchange(only(request_.root, mine),
                  root ? row(output_, false) : std::vector<Block>(channel_.size));
}

Status Launch::scatter() const {
  const bool root = channel_.rank == request_.root;
  const Block mine{output_, share(request_.root, channel_.rank)};
  return exchange(root ? row(input_, true) : std::vector<Block>(channel_.size),
                  only(request_.root, mine));
}

// Of two ranks the first sends.
Status Launch::message() const {
  const auto count = static_cast<size_t>(request_.count);
  if (channel_.rank == 0) {
    return says(api_.send(input_, count, type_, 1, channel_.comm, channel_.stream), "ncclSend");
  }
  return says(api_.recv(output_, count, type_, 0, channel_.comm, channel_.stream), "ncclRecv");
}

Status Launch::run() {
  const auto count = static_cast<size_t>(request_.count);
  const int op = op_of(request_.op);
  const Comm comm = channel_.comm;
  const Handle stream = channel_.stream;
  switch (request_.routine) {
    case Routine::kAllReduce:
      return says(api_.all_reduce(input_, output_, count, type_, op, comm, stream),
                  "ncclAllReduce");
    case Routine::kBroadcast:
      return says(api_.broadcast(input_, output_, count, type_, request_.root, comm, stream),
                  "ncclBroadcast");
    case Routine::kReduce:
      return says(api_.reduce(input_, output_ == nullptr ? input_ : output_, count, type_, op,
                              request_.root, comm, stream),
                  "ncclReduce");
    case Routine::kAllGather:
      if (!even())
        return exchange(std::vector<Block>(channel_.size, {input_, share(channel_.rank, 0)}),
                        row(output_, false));
      return says(api_.all_gather(input_, output_, count, type_, comm, stream), "ncclAllGather");
    case Routine::kReduceScatter:
      if (!even()) return uneven_reduce_scatter();
      return says(api_.reduce_scatter(input_, output_, count, type_, op, comm, stream),
                  "ncclReduceScatter");
    case Routine::kGather: return gather();
    case Routine::kScatter: return scatter();
    case Routine::kSend: return message();
    case Routine::kAllToAll: return exchange(row(input_, true), row(output_, false));
    default: break;
  }
  return base::unsupported(fmt::format("NCCL has no {}", schedule::name_of(request_.routine)));
}

}  // namespace

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return kDouble;
    case DType::kFloat32: return kFloat;
    case DType::kBFloat16: return kBfloat16;
    case DType::kFloat16: return kHalf;
    case DType::kInt32: return kInt32;
    case DType::kInt64: return kInt64;
    case DType::kInt8: return kInt8;
    case DType::kUInt8:
    case DType::kBool:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return kUint8;  // moved only: choose() has them summed by torch
  }
  throw Error(base::internal("unknown element type"));
}

Status launch_native(const Channel& channel, Request& request, void* barrier_token) {
  if (request.routine == Routine::kBarrier) {
    const int answer = channel.library->api().all_reduce(barrier_token, barrier_token, 1, kUint8,
                                                         kMax, channel.comm, channel.stream);
    return channel.library->status(answer, "ncclAllReduce", channel.comm);
  }
  if (request.count == 0) return {};
  if (request.in_place) {  // what is received must not overwrite what is still to be sent
    request.input = request.input.detach().clone();
  }
  return Launch(channel, request).run();
}

}  // namespace hanji::comm::nccl
