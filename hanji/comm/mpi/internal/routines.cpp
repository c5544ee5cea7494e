#include "hanji/comm/mpi/internal/routines.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace hanji::comm::mpi {
namespace {

using schedule::Routine;

/// Longer reductions and broadcasts go in pieces.
constexpr int64_t kPiece = int64_t{1} << 30;

int as_int(int64_t count) {
  if (count <= std::numeric_limits<int>::max()) return static_cast<int>(count);
  throw Error(base::unsupported(
      fmt::format("{} elements are more than MPI counts (2^31 - 1); split the tensor", count)));
}

/// One request in the words of MPI.
class Start {
 public:
  Start(const Request& request, const Communicator& communicator, Requests& requests)
      : request_(request),
        communicator_(communicator),
        requests_(requests),
        type_(communicator.session().operations().type(request.dtype)),
        op_(communicator.session().operations().op(request.op, request.dtype)),
        element_bytes_(static_cast<int64_t>(base::size_of(request.dtype))) {}

  void broadcast();
  void all_reduce();
  void reduce();
  void all_gather();
  void gather();
  void scatter();
  void reduce_scatter();
  void all_to_all();

 private:
  MPI_Comm comm() const { return communicator_.handle(); }
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  bool at_root() const { return rank() == request_.root; }
  bool uneven() const { return !request_.counts.empty(); }

  const char* input() const { return static_cast<const char*>(request_.input.const_data_ptr()); }
  char* output() const { return static_cast<char*>(request_.output.data_ptr()); }
  /// Elements of a rank's share, and of all shares before it.
  int64_t share(int of) const { return uneven() ? request_.counts[of] : request_.count; }
  int64_t before(int of) const;
  /// The input, or a copy where the output lies in it.
  const void* input_apart();
  std::vector<int>& shares();
  std::vector<int>& places();
  /// Calls start(offset in bytes, elements) for each piece of `count`.
  template <class Piece>
  void in_pieces(const char* call, Piece start);

  const Request& request_;
  const Communicator& communicator_;
  Requests& requests_;
  const MPI_Datatype type_;
  const MPI_Op op_;
  const int64_t element_bytes_;
};

int64_t Start::before(int of) const {
  int64_t sum = 0;
  for (int rank = 0; rank < of; ++rank) sum += share(rank);
  return sum;
}

const void* Start::input_apart() {
  if (input() + request_.input.nbytes() <= output() ||
      output() + request_.output.nbytes() <= input()) {
    return input();
  }
  const at::Tensor copy = request_.input.detach().clone();
  requests_.keep(copy);
  return copy.const_data_ptr();
}

std::vector<int>& Start::shares() {
  std::vector<int> counts;
  for (int of = 0; of < size(); ++of) counts.push_back(as_int(share(of)));
  return requests_.keep(std::move(counts));
}

std::vector<int>& Start::places() {
  std::vector<int> begins;
  for (int of = 0; of < size(); ++of) begins.push_back(as_int(before(of)));
  return requests_.keep(std::move(begins));
}

template <class Piece>
void Start::in_pieces(const char* call, Piece start) {
  for (int64_t begin = 0; begin < request_.count; begin += kPiece) {
    const int64_t count = std::min(kPiece, request_.count - begin);
    check(start(begin * element_bytes_, static_cast<int>(count)), call);
  }
}

void Start::broadcast() {
  in_pieces("MPI_Ibcast", [&](int64_t at, int count) {
    return MPI_Ibcast(output() + at, count, type_, request_.root, comm(), requests_.add());
  });
}

void Start::all_reduce() {
  const bool in_place = input() == output();
  in_pieces("MPI_Iallreduce", [&](int64_t at, int count) {
    return MPI_Iallreduce(in_place ? MPI_IN_PLACE : input() + at, output() + at, count, type_, op_,
                          comm(), requests_.add());
  });
}

void Start::reduce() {
  const bool in_place = at_root() && input() == output();
  in_pieces("MPI_Ireduce", [&](int64_t at, int count) {
    return MPI_Ireduce(in_place ? MPI_IN_PLACE : input() + at, at_root() ? output() + at : nullptr,
                       count, type_, op_, request_.root, comm(), requests_.add());
  });
}

void Start::all_gather() {
  const void* from = input_apart();
  const int count = as_int(share(rank()));
  if (uneven()) {
    auto &counts = shares(), &begins = places();
    check(MPI_Iallgatherv(from, count, type_, output(), counts.data(), begins.data(), type_, comm(),
                          requests_.add()),
          "MPI_Iallgatherv");
  } else {
    check(MPI_Iallgather(from, count, type_, output(), count, type_, comm(), requests_.add()),
          "MPI_Iallgather");
  }
}

void Start::gather() {
  const void* from = at_root() ? input_apart() : input();
  void* to = at_root() ? output() : nullptr;
  const int count = as_int(share(rank()));
  if (uneven()) {
    auto &counts = shares(), &begins = places();
    check(MPI_Igatherv(from, count, type_, to, counts.data(), begins.data(), type_, request_.root,
                       comm(), requests_.add()),
          "MPI_Igatherv");
  } else {
    check(MPI_Igather(from, count, type_, to, count, type_, request_.root, comm(), requests_.add()),
          "MPI_Igather");
  }
}

void Start::scatter() {
  const void* from = at_root() ? input_apart() : nullptr;
  const int count = as_int(share(rank()));
  if (uneven()) {
    auto &counts = shares(), &begins = places();
    check(MPI_Iscatterv(from, counts.data(), begins.data(), type_, output(), count, type_,
                        request_.root, comm(), requests_.add()),
          "MPI_Iscatterv");
  } else {
    check(MPI_Iscatter(from, count, type_, output(), count, type_, request_.root, comm(),
                       requests_.add()),
          "MPI_Iscatter");
  }
}

void Start::reduce_scatter() {
  const void* from = input_apart();
  if (uneven()) {
    check(MPI_Ireduce_scatter(from, output(), shares().data(), type_, op_, comm(), requests_.add()),
          "MPI_Ireduce_scatter");
  } else {
    check(MPI_Ireduce_scatter_block(from, output(), as_int(request_.count), type_, op_, comm(),
                                    requests_.add()),
          "MPI_Ireduce_scatter_block");
  }
}

void Start::all_to_all() {
  const void* from = input_apart();
  if (!uneven()) {
    const int count = as_int(request_.count);
    check(MPI_Ialltoall(from, count, type_, output(), count, type_, comm(), requests_.add()),
          "MPI_Ialltoall");
    return;
  }
  std::vector<int> given, given_at, got, got_at;
  int64_t given_sum = 0;
  int64_t got_sum = 0;
  for (int peer = 0; peer < size(); ++peer) {
    given_at.push_back(as_int(given_sum));
    got_at.push_back(as_int(got_sum));
    given.push_back(as_int(request_.counts[rank() * size() + peer]));
    got.push_back(as_int(request_.counts[peer * size() + rank()]));
    given_sum += given.back();
    got_sum += got.back();
  }
  const int* const numbers[] = {
      requests_.keep(std::move(given)).data(), requests_.keep(std::move(given_at)).data(),
      requests_.keep(std::move(got)).data(), requests_.keep(std::move(got_at)).data()};
  check(MPI_Ialltoallv(from, numbers[0], numbers[1], type_, output(), numbers[2], numbers[3], type_,
                       comm(), requests_.add()),
        "MPI_Ialltoallv");
}

}  // namespace

void start(const Request& request, const Communicator& communicator, Requests& requests) {
  Start start(request, communicator, requests);
  switch (request.routine) {
    case Routine::kBroadcast: start.broadcast(); break;
    case Routine::kAllReduce: start.all_reduce(); break;
    case Routine::kReduce: start.reduce(); break;
    case Routine::kAllGather: start.all_gather(); break;
    case Routine::kGather: start.gather(); break;
    case Routine::kScatter: start.scatter(); break;
    case Routine::kReduceScatter: start.reduce_scatter(); break;
    case Routine::kAllToAll: start.all_to_all(); break;
    default: throw Error(base::internal("no routine of MPI"));
  }
  const bool divides = schedule::reduces(request.routine) &&
                       request.op == schedule::ReduceOp::kAvg &&
                       (request.routine != Routine::kReduce || communicator.rank() == request.root);
  if (!divides) return;
  requests.after([output = request.output.detach(), ranks = communicator.size()]() mutable {
    output.is_floating_point() ? output.div_(ranks) : output.div_(ranks, "trunc");
  });
}

}  // namespace hanji::comm::mpi
