#include "hanji/parallel/fsdp/internal/shard_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/units.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

/// Throws on all ranks of the groups if any has failed: its own failure, or who has one.
void agree(const Status& mine, const std::string& owner,
           const std::vector<const comm::Group*>& groups) {
  bool failed = !mine.ok();
  Status theirs;
  for (const comm::Group* group : groups) {
    const int64_t from_end = failed ? group->size() - group->rank() : 0;
    at::Tensor first = at::full({1}, from_end, at::kLong);
    comm::all_reduce_on_host(first, *group,
                             {.op = schedule::ReduceOp::kMax, .label = "offload files"});
    const int64_t found = first.item<int64_t>();
    if (found == 0 || failed) continue;
    failed = true;
    theirs = base::unsupported(
        fmt::format("{}: rank {} of group {} could not have its file; its own error says why",
                    owner, group->size() - found, group->name()));
  }
  base::throw_if_error(mine);
  base::throw_if_error(theirs);
}

int64_t bytes_of(const ShardStore::Place& place) {
  return offload_bytes(place.count, c10::elementSize(place.dtype));
}

}  // namespace

/// Outlives the store where a tensor does.
struct ShardStore::Windows {
  std::vector<OffloadFile::Memory> all;
  std::vector<OffloadFile::Memory> free;
};

ShardStore::ShardStore(std::string owner, const ShardOffload& options,
                       const std::vector<int64_t>& bytes,
                       const std::vector<const comm::Group*>& groups)
    : windows_(std::make_shared<Windows>()),
      num_windows_(static_cast<size_t>(options.num_windows)) {
  for (const int64_t each : bytes) {
    num_bytes_ += base::whole_blocks(each);
    window_bytes_ = std::max(window_bytes_, base::whole_blocks(each));
  }
  auto file = OffloadFile::create(
      owner, options.folder, num_bytes_,
      {.engine = options.engine, .timeout = options.timeout, .log = options.log});
  agree(file.status(), owner, groups);
  file_ = *std::move(file);
}

ShardStore::Place ShardStore::place(int64_t count, at::ScalarType dtype) {
  const Place place{next_, count, dtype};
  next_ += bytes_of(place);
  return place;
}

/// Whether there is a window to be had, after waiting for a write if need be.
bool ShardStore::make_room() {
  while (windows_->free.empty() && windows_->all.size() >= num_windows_ && !writes_.empty()) {
    file_->wait(writes_.front().ticket);
    writes_.pop_front();
  }
  return !windows_->free.empty() || windows_->all.size() < num_windows_;
}

at::Tensor ShardStore::window(const Place& place) {
  if (place.count == 0) return at::empty({0}, at::TensorOptions(place.dtype));
  make_room();
  if (windows_->free.empty()) {
    windows_->all.push_back(base::scratch_memory(window_bytes_).or_throw());
    windows_->free.push_back(windows_->all.back());
  }
  OffloadFile::Memory memory = std::move(windows_->free.back());
  windows_->free.pop_back();
  void* data = memory.get();
  const auto give_back = [windows = windows_, memory = std::move(memory)](void*) {
    windows->free.push_back(memory);
  };
  return at::from_blob(data, {place.count}, give_back, at::TensorOptions(place.dtype));
}

OffloadFile::Memory ShardStore::memory_of(const at::Tensor& window) const {
  return *std::ranges::find(windows_->all, window.data_ptr(),
                            [](const auto& memory) { return static_cast<void*>(memory.get()); });
}

void ShardStore::begin_read(const Place& place) {
  const at::Tensor into = window(place);
  const auto ticket = file_->read(place.at, memory_of(into), bytes_of(place));
  reads_.push_back({place.at, ticket, into});
}

void ShardStore::read_ahead(const Place& place) {
  if (place.count > 0 && find_read(place) == reads_.end() && make_room()) begin_read(place);
}

at::Tensor ShardStore::read(const Place& place) {
  if (place.count == 0) return window(place);
  if (find_read(place) == reads_.end()) begin_read(place);
  const auto found = find_read(place);
  const Transfer read = std::move(*found);
  reads_.erase(found);
  file_->wait(read.ticket);
  return read.window;
}

void ShardStore::write(const Place& place, const at::Tensor& window) {
  if (place.count == 0) return;
  const auto ticket = file_->write(place.at, memory_of(window), bytes_of(place));
  writes_.push_back({place.at, ticket, window});
}

void ShardStore::drop_ahead() {
  for (const Transfer& read : std::exchange(reads_, {})) file_->wait(read.ticket);
}

std::vector<ShardStore::Transfer>::iterator ShardStore::find_read(const Place& place) {
  return std::ranges::find(reads_, place.at, &Transfer::at);
}

std::string ShardStore::description() const {
  return fmt::format("{} in a file, {} windows of {} in memory; {}", base::format_bytes(num_bytes_),
                     windows_->all.size(), base::format_bytes(window_bytes_), file_->description());
}

StoredShard::StoredShard(std::shared_ptr<ShardStore> store, int64_t count, at::ScalarType dtype,
                         std::string why)
    : store_(std::move(store)),
      place_(store_->place(count, dtype)),
      tensor_(without_memory({count}, dtype, why)),
      why_(std::move(why)) {}

void StoredShard::lend(at::Tensor window) {
  window_ = std::move(window);
  lend_memory(tensor_, window_.data_ptr());
}

void StoredShard::bring() {
  if (!window_.defined()) lend(store_->read(place_));
}

void StoredShard::make() {
  if (!window_.defined()) lend(store_->window(place_));
}

void StoredShard::keep() {
  store_->write(place_, window_);
  drop();
}

void StoredShard::drop() {
  if (!window_.defined()) return;
  take_memory(tensor_, why_);
  window_.reset();
}

}  // namespace hanji::parallel
