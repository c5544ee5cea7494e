#include "hanji/comm/mpi/internal/mpi_wire.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "hanji/comm/mpi/internal/requests.h"
#include "hanji/comm/mpi/internal/routines.h"

namespace hanji::comm::mpi {
namespace {

/// Of a group's collectives, and of messages to a higher and a lower rank.
constexpr int kGroupTag = 1;
constexpr int kUpwardsTag = 2;
constexpr int kDownwardsTag = 3;

/// Of one message of MPI, whose counts are ints.
constexpr int64_t kMaxBytes = int64_t{1} << 30;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Calls post(offset, bytes) for each message that `bytes` are cut into.
template <class Post>
void in_messages(int64_t bytes, const char* call, Post post) {
  for (int64_t at = 0; at < bytes; at += kMaxBytes) {
    check(post(at, static_cast<int>(std::min(kMaxBytes, bytes - at))), call);
  }
}

}  // namespace

/// Sends to all, receives from all.
class MpiWire::Gathering final : public Pending {
 public:
  Gathering(const MpiWire& wire, std::span<const std::byte> mine, std::span<std::byte> all)
      : open_(wire.open_),
        sent_(wire.size(), MPI_REQUEST_NULL),
        heard_(std::make_shared<std::vector<MPI_Request>>(wire.size(), MPI_REQUEST_NULL)) {
    ++*open_;
    const auto bytes = static_cast<int>(mine.size());
    const MPI_Comm comm = wire.communicator_->handle();
    std::memcpy(all.data() + wire.rank() * mine.size(), mine.data(), mine.size());
    for (int i = 1; i < wire.size(); ++i) {  // everybody begins with another one
      const int peer = (wire.rank() + i) % wire.size();
      check(MPI_Irecv(all.data() + peer * mine.size(), bytes, MPI_BYTE, wire.members_[peer],
                      wire.tag_, comm, &(*heard_)[peer]),
            "MPI_Irecv");
      check(MPI_Isend(mine.data(), bytes, MPI_BYTE, wire.members_[peer], wire.tag_, comm,
                      &sent_[peer]),
            "MPI_Isend");
    }
  }

  ~Gathering() override {
    if (done_) --*open_;
  }

  bool done() override { return done_ = done_ || (test(*heard_) && test(sent_)); }

  const std::shared_ptr<std::vector<MPI_Request>>& heard() const { return heard_; }

 private:
  /// What has ended becomes MPI_REQUEST_NULL, one by one.
  static bool test(std::vector<MPI_Request>& requests) {
    bool all = true;
    for (MPI_Request& request : requests) {
      int ended = 1;
      if (request != MPI_REQUEST_NULL) {
        check(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
      }
      all = all && ended;
    }
    return all;
  }

  const std::shared_ptr<int> open_;
  std::vector<MPI_Request> sent_;
  const std::shared_ptr<std::vector<MPI_Request>> heard_;
  bool done_ = false;
};

MpiWire::MpiWire(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      members_(all_ranks(communicator_->size())),
      rank_(communicator_->rank()),
      tag_(kGroupTag) {}

MpiWire::MpiWire(std::shared_ptr<Communicator> communicator, int sender, int receiver)
    : communicator_(std::move(communicator)),
      members_{sender, receiver},
      rank_(communicator_->rank() == sender ? 0 : 1),
      tag_(sender < receiver ? kUpwardsTag : kDownwardsTag) {}

bool MpiWire::native(schedule::Routine routine, Shares /*shares*/) const {
  using schedule::Routine;
  return routine != Routine::kBarrier && routine != Routine::kSend &&
         routine != Routine::kTreeReduce;
}

std::unique_ptr<Pending> MpiWire::send(const void* from, int64_t bytes, int peer) {
  auto requests = std::make_unique<Requests>(open_);
  in_messages(bytes, "MPI_Isend", [&](int64_t at, int length) {
    return MPI_Isend(static_cast<const char*>(from) + at, length, MPI_BYTE, members_[peer], tag_,
                     communicator_->handle(), requests->add());
  });
  return requests;
}

std::unique_ptr<Pending> MpiWire::receive(void* to, int64_t bytes, int peer) {
  auto requests = std::make_unique<Requests>(open_);
  in_messages(bytes, "MPI_Irecv", [&](int64_t at, int length) {
    return MPI_Irecv(static_cast<char*>(to) + at, length, MPI_BYTE, members_[peer], tag_,
                     communicator_->handle(), requests->add());
  });
  return requests;
}

std::unique_ptr<Pending> MpiWire::gather(std::span<const std::byte> mine,
                                         std::span<std::byte> all) {
  auto gathering = std::make_unique<Gathering>(*this, mine, all);
  heard_ = gathering->heard();
  return gathering;
}

std::unique_ptr<Pending> MpiWire::run(const Request& request) {
  auto requests = std::make_unique<Requests>(open_);
  start(request, *communicator_, *requests);
  return requests;
}

std::vector<int> MpiWire::absent() const {
  std::vector<int> ranks;
  for (int rank = 0; heard_ && rank < size(); ++rank) {
    if ((*heard_)[rank] != MPI_REQUEST_NULL) ranks.push_back(rank);
  }
  return ranks;
}

bool MpiWire::abandon() noexcept {
  if (*open_ == 0) return true;
  communicator_->session().condemn();
  return false;
}

}  // namespace hanji::comm::mpi
