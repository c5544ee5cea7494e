#include "hanji/comm/mpi/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/base/env.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/internal/message_group.h"
#include "hanji/comm/mpi/internal/mpi_wire.h"

namespace hanji::comm::mpi {
namespace {

using CommunicatorPtr = std::shared_ptr<Communicator>;

void check_options(const Session& session, const GroupOptions& options) {
  if (options.progress != Progress::kThread || session.thread_level() == MPI_THREAD_MULTIPLE) {
    return;
  }
  throw Error(base::unsupported(fmt::format(
      "group {}: a thread of its own needs MPI_THREAD_MULTIPLE, and MPI has thread level "
      "{}; initialise it so, or use Progress::kCaller",
      options.name, session.thread_level())));
}

/// The members, in their order; called by them alone. `tag` tells groups apart that are made at
/// once.
CommunicatorPtr divide(std::shared_ptr<Session> session, MPI_Comm parent,
                       const std::vector<int>& members, int tag) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_group(parent, &all), "MPI_Comm_group");
  const int included =
      MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen);
  MPI_Group_free(&all);
  check(included, "MPI_Group_incl");
  const int created = MPI_Comm_create_group(parent, chosen, tag, &made);
  MPI_Group_free(&chosen);
  check(created, "MPI_Comm_create_group");
  return std::make_shared<Communicator>(std::move(session), made);
}

Group make_group_over(const CommunicatorPtr& communicator, const Heap& heap, GroupOptions options) {
  check_options(communicator->session(), options);
  auto divided = [communicator, heap](int id, const std::vector<int>& members, GroupOptions part) {
    constexpr int kTags = 1 << 14;  // MPI promises 2^15 - 1 at least
    auto made = divide(communicator->shared_session(), communicator->handle(), members, id % kTags);
    return make_group_over(made, heap, std::move(part));
  };
  MessageParts parts{.wire = std::make_unique<MpiWire>(communicator),
                     .open_channel =
                         [communicator](int sender, int receiver) {
                           return std::make_unique<MpiWire>(communicator, sender, receiver);
                         },
                     .heap = heap,
                     .divide = std::move(divided)};
  return make_message_group(std::move(parts), std::move(options));
}

CommunicatorPtr duplicate(std::shared_ptr<Session> session, MPI_Comm theirs) {
  if (theirs == MPI_COMM_NULL) {
    throw Error(base::invalid_argument(
        "MPI_COMM_NULL has no ranks; call make_group on the ranks of a communicator only"));
  }
  int is_inter = 0;
  check(MPI_Comm_test_inter(theirs, &is_inter), "MPI_Comm_test_inter");
  if (is_inter) {
    throw Error(base::invalid_argument(
        "an inter-communicator has two groups of ranks; merge them by MPI_Intercomm_merge"));
  }
  MPI_Comm ours = MPI_COMM_NULL;
  check(MPI_Comm_dup(theirs, &ours), "MPI_Comm_dup");
  return std::make_shared<Communicator>(std::move(session), ours);
}

/// MPI_Init without a launcher would make a world of one process out of each rank.
bool has_launcher() {
  using base::Variable;
  int initialised = 0;
  check(MPI_Initialized(&initialised), "MPI_Initialized");
  return initialised || base::read(Variable::kOmpiSize) || base::read(Variable::kPmiSize) ||
         base::read(Variable::kPmixRank);
}

void check_launcher(const Group& meet) {
  if (has_launcher() || meet.size() == 1) return;
  throw Error(base::unsupported(fmt::format(
      "the {} ranks of group {} were not started by a launcher of MPI (no OMPI_COMM_WORLD_SIZE, "
      "PMI_SIZE or PMIX_RANK), so they are not in one MPI world; start the program by mpirun -n {} "
      "or srun --mpi=pmix",
      meet.size(), meet.name(), meet.size())));
}

/// Where the ranks of `meet` stand in MPI_COMM_WORLD.
std::vector<int> ranks_in_world(const Group& meet) {
  int mine = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &mine), "MPI_Comm_rank");
  at::Tensor all = at::empty({meet.size()}, at::kLong);
  all_gather(all, at::full({1}, mine, at::kLong), meet, {.label = "ranks of MPI_COMM_WORLD"})
      .wait();
  const auto* said = all.const_data_ptr<int64_t>();
  std::vector<int> ranks(said, said + meet.size());
  for (int rank = 1; rank < meet.size(); ++rank) {
    if (std::find(ranks.begin(), ranks.begin() + rank, ranks[rank]) == ranks.begin() + rank) {
      continue;
    }
    throw Error(base::unsupported(
        fmt::format("group {}: two ranks are rank {} of MPI_COMM_WORLD, so they are not in one MPI "
                    "world; start all of them by one mpirun or one srun --mpi=pmix",
                    meet.name(), ranks[rank])));
  }
  return ranks;
}

}  // namespace

Group make_group(const void* communicator, GroupOptions options) {
  auto session = Session::open();
  const MPI_Comm theirs =
      communicator ? *static_cast<const MPI_Comm*>(communicator) : MPI_COMM_WORLD;
  return make_group_over(duplicate(std::move(session), theirs), Heap::private_arena(),
                         std::move(options));
}

Group make_group(const Group& meet, GroupOptions options) {
  check_launcher(meet);
  auto session = Session::open();
  constexpr int kMeetTag = (1 << 14) + 1;
  const auto ours = divide(std::move(session), MPI_COMM_WORLD, ranks_in_world(meet), kMeetTag);
  return make_group_over(ours, meet.heap(), std::move(options));
}

hierarchical::Join make_join(int rank) {
  if (!has_launcher()) {
    throw Error(base::unsupported(
        "MPI between hosts: the ranks were not started by a launcher of MPI (no "
        "OMPI_COMM_WORLD_SIZE, PMI_SIZE or PMIX_RANK); start them by one mpirun or one srun "
        "--mpi=pmix, or join the hosts by Gloo"));
  }
  auto session = Session::open();
  int mine = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &mine), "MPI_Comm_rank");
  if (mine != rank) {
    throw Error(base::unsupported(
        fmt::format("MPI between hosts: rank {} is rank {} of MPI_COMM_WORLD; start all ranks by "
                    "one mpirun or one srun --mpi=pmix",
                    rank, mine)));
  }
  return [session](const std::string& name, const std::vector<int>& members, GroupOptions options) {
    constexpr int kTags = 1 << 14;  // those above are other groups'
    const auto tag = static_cast<int>(base::xxh3(std::as_bytes(std::span(name))) % kTags);
    return make_group_over(divide(session, MPI_COMM_WORLD, members, tag), Heap::private_arena(),
                           std::move(options));
  };
}

}  // namespace hanji::comm::mpi
