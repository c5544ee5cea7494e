#include "hanji/comm/lease.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/internal/shm_engine.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/submit.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {
namespace {

constexpr int kSpins = 1000;
constexpr int64_t kNowhere = -1;

/// What a rank says of its shard. Three words ride in a flag line.
struct Said {
  int64_t offset;   ///< In the segment, or kNowhere.
  int64_t holders;  ///< Offset of the word with a bit for each rank that looks at the shard.
  int64_t what;     ///< Elements, shifted by 8 bits, and their c10::ScalarType.

  int64_t num_elements() const { return what >> 8; }
  int64_t dtype() const { return what & 0xff; }
};
static_assert(sizeof(Said) == 24);

using Holders = std::atomic<uint64_t>;
static_assert(sizeof(Holders) == sizeof(int64_t) && Holders::is_always_lock_free);

/// Those that outlived their owner's lease and are released by now.
void drop_released(GroupFamily& family) {
  const std::lock_guard lock(family.mutex);
  std::erase_if(family.leased, [](const auto& leased) {
    return static_cast<const Holders*>(leased.second.const_data_ptr())->load() == 0;
  });
}

std::vector<Said> exchange_all(const Said& mine, const Group& group, const CallOptions& options,
                               std::source_location call_site) {
  at::Tensor one = at::empty({3}, at::kLong);
  std::memcpy(one.data_ptr(), &mine, sizeof mine);
  at::Tensor all = at::empty({3 * group.size()}, at::kLong);
  all_gather(all, one, group, options, call_site).wait();
  std::vector<Said> said(group.size());
  std::memcpy(said.data(), all.const_data_ptr(), all.nbytes());
  return said;
}

/// Everybody sees the same words, so all refuse together.
void check_alike(const std::vector<Said>& said, const Group& group) {
  for (int rank = 0; rank < group.size(); ++rank) {
    if (said[rank].offset == kNowhere) {
      throw Error(
          base::invalid_argument(fmt::format("all_gather_view on group {}: the shard of rank {} is "
                                             "not in its heap, where others could "
                                             "look at it; make it by group.heap().empty()",
                                             group.name(), rank)));
    }
    if (said[rank].dtype() != said[0].dtype()) {
      const auto name = [](int64_t type) {
        return c10::toString(static_cast<c10::ScalarType>(type));
      };
      throw Error(base::mismatch(fmt::format(
          "all_gather_view on group {}: the shard of rank {} is {} and that of rank 0 {}; all must "
          "have one dtype",
          group.name(), rank, name(said[rank].dtype()), name(said[0].dtype()))));
    }
  }
}

/// Rows as the own shard has them, if whole ones fit.
std::vector<int64_t> sizes_like(const at::Tensor& own, int64_t num_elements) {
  if (num_elements == own.numel()) return own.sizes().vec();
  if (own.dim() == 0 || own.numel() == 0) return {num_elements};
  std::vector<int64_t> sizes = own.sizes().vec();
  const int64_t row = own.numel() / sizes[0];
  if (num_elements % row != 0) return {num_elements};
  sizes[0] = num_elements / row;
  return sizes;
}

}  // namespace

class Lease::State {
 public:
  State(at::Tensor shard, at::Tensor holders, Group group)
      : shard_(std::move(shard)),
        holders_(std::move(holders)),
        group_(std::move(group)),
        version_(shard_._version()) {}

  ~State() {
    drop();
    if (others() == 0) return;
    GroupFamily& family = group_.state()->family();
    const std::lock_guard lock(family.mutex);
    family.leased.emplace_back(shard_, holders_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void look_at(const std::vector<Said>& said) {
    const auto& segment = group_.heap().segment();
    const std::byte* read_only = segment->read_only().or_throw();
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) {
        shards_.push_back(shard_);
        continue;
      }
      auto* data = const_cast<std::byte*>(read_only) + said[rank].offset;
      const auto keep = [segment](void*) {};  // the mapping
      shards_.push_back(at::from_blob(data, sizes_like(shard_, said[rank].num_elements()), keep,
                                      shard_.options().requires_grad(false)));
      held_.push_back(reinterpret_cast<Holders*>(segment->data() + said[rank].holders));
    }
  }

  const std::vector<at::Tensor>& shards() const {
    if (!released_) return shards_;
    throw Error(base::invalid_argument("lease: its shards are asked for after release()"));
  }

  void release() {
    check_unused();
    drop();
    check_unwritten();
  }

  uint64_t others() const {
    return static_cast<const Holders*>(holders_.const_data_ptr())->load(std::memory_order_acquire);
  }

  void wait(std::chrono::nanoseconds deadline) {
    release();
    const auto limit = base::Deadline::after(deadline);
    for (int polls = 0; others() != 0; ++polls) {
      if (polls < kSpins) continue;
      check_unwritten();
      base::throw_if_error(group_.heap().segment()->abort_status());
      if (limit.passed()) {
        throw Error(base::timeout(fmt::format(
            "lease on group {}: the shard of rank {} is still held by ranks {}; they must release "
            "their leases before it is written",
            group_.name(), group_.rank(), fmt::join(ranks_in(others()), ", "))));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    // From here on the owner may write.
    version_ = shard_._version();
    guarded_ = false;
  }

 private:
  void drop() {
    if (released_) return;
    released_ = true;
    shards_.clear();
    const uint64_t me = uint64_t{1} << group_.rank();
    for (Holders* holders : held_) holders->fetch_and(~me, std::memory_order_release);
  }

  void check_unwritten() const {
    const uint64_t holders = others();
    if (!guarded_ || holders == 0 || shard_._version() == version_) return;
    throw Error(base::invalid_argument(
        fmt::format("lease on group {}: rank {} wrote to its shard while ranks {} held it; call "
                    "wait_released() "
                    "first",
                    group_.name(), group_.rank(), fmt::join(ranks_in(holders), ", "))));
  }

  void check_unused() const {
    for (int rank = 0; rank < static_cast<int>(shards_.size()); ++rank) {
      const at::Tensor& shard = shards_[rank];
      const bool ours_alone = shard.use_count() == 1 && shard.storage().use_count() == 1;
      if (rank == group_.rank() || ours_alone) continue;
      throw Error(base::invalid_argument(fmt::format(
          "lease on group {}: rank {} releases it and still has a tensor of the shard of rank {}; "
          "drop it first",
          group_.name(), group_.rank(), rank)));
    }
  }

  at::Tensor shard_;
  at::Tensor holders_;
  Group group_;
  uint32_t version_;
  bool guarded_ = true;
  bool released_ = false;
  std::vector<at::Tensor> shards_;
  std::vector<Holders*> held_;
};

const std::vector<at::Tensor>& Lease::shards() const { return state_->shards(); }
void Lease::release() { state_->release(); }
std::vector<int> Lease::holders() const { return ranks_in(state_->others()); }
void Lease::wait_released(std::chrono::nanoseconds deadline) { state_->wait(deadline); }

Lease all_gather_view(const at::Tensor& shard, const Group& group, const CallOptions& options,
                      std::source_location call_site) {
  if (!group.state()->engine().shares_memory()) {
    throw Error(base::unsupported(fmt::format(
        "all_gather_view: the ranks of group {} do not share memory over engine {}; use "
        "all_gather()",
        group.name(), group.engine())));
  }
  check_tensor(shard, "shard", open_request(schedule::Routine::kAllGather, options, call_site),
               group);
  drop_released(group.state()->family());
  Heap& heap = group.heap();
  const at::Tensor holders = heap.zeros({8}, at::kLong, "leases");
  const uint64_t all = group.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << group.size()) - 1;
  static_cast<Holders*>(holders.data_ptr())->store(all & ~(uint64_t{1} << group.rank()));
  const bool inside = heap.contains(shard);
  const Said mine{inside ? heap.raw().offset_of(shard.const_data_ptr()) : kNowhere,
                  heap.raw().offset_of(holders.const_data_ptr()),
                  shard.numel() << 8 | static_cast<int64_t>(shard.scalar_type())};
  const std::vector<Said> said = exchange_all(mine, group, options, call_site);
  check_alike(said, group);
  auto state = std::make_shared<Lease::State>(shard, holders, group);
  state->look_at(said);
  return Lease(std::move(state));
}

}  // namespace hanji::comm
