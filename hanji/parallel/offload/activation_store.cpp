#include "hanji/parallel/offload/activation_store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::parallel {
using base::ScratchFile;

/// The bytes of one storage in the file.
struct StoredBytes {
  StoredBytes(uint64_t number, int64_t at, int64_t bytes) : number(number), at(at), bytes(bytes) {}

  uint64_t number;  ///< In the order of saving.
  int64_t at = 0;
  int64_t bytes = 0;           ///< Whole blocks.
  int num_saved = 0;           ///< Tensors that lie in it.
  int num_taken = 0;           ///< In this backward.
  ScratchFile::Memory memory;  ///< While it is written or wanted.
  std::optional<ScratchFile::Ticket> writing, reading;
};

/// Shared with the graphs, which may outlive the store.
class ActivationStore::Impl : public lens::Saver, public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(const ActivationOptions& options)
      : options_(options),
        file_(ScratchFile::create(options.folder, 0, {options.engine, options.timeout, options.log})
                  .or_throw()) {}

  std::unique_ptr<lens::SavedTensor> save(const at::Tensor& tensor) override;
  at::Tensor take(StoredBytes& bytes, const lens::Geometry& geometry);
  void release(StoredBytes& bytes);

  int64_t stored_bytes() const {
    const std::lock_guard lock(mutex_);
    return stored_bytes_;
  }
  const std::string& description() const { return file_.description(); }

 private:
  class Saved;
  /// A storage that was saved, as long as that storage lives.
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint32_t version;
    std::weak_ptr<StoredBytes> bytes;
  };

  bool stays(const at::Tensor& tensor) const;
  std::shared_ptr<StoredBytes> find(const at::Tensor& tensor);
  std::shared_ptr<StoredBytes> store(const at::Tensor& tensor);
  int64_t place(int64_t bytes);
  ScratchFile::Memory take_memory(int64_t bytes);
  void give_memory(StoredBytes& bytes);
  void finish_writes(int64_t most_bytes);
  void finish_write(StoredBytes& bytes);
  void read(StoredBytes& bytes);
  void read_ahead(const StoredBytes& before);

  const ActivationOptions options_;
  mutable std::recursive_mutex mutex_;  ///< Within a call the last holder of bytes may let go.
  ScratchFile file_;
  uint64_t next_ = 0;
  int64_t end_ = 0;  ///< Of what was ever used.
  int64_t stored_bytes_ = 0;
  std::map<uint64_t, StoredBytes*> alive_;
  std::deque<std::weak_ptr<StoredBytes>> writing_;
  int64_t writing_bytes_ = 0;
  std::map<int64_t, std::vector<int64_t>> free_places_;  ///< By size: layers save alike.
  std::map<int64_t, std::vector<ScratchFile::Memory>> free_memory_;
  int64_t free_bytes_ = 0;
  std::unordered_map<const void*, Known> known_;
};

class ActivationStore::Impl::Saved : public lens::SavedTensor {
 public:
  Saved(std::shared_ptr<Impl> store, std::shared_ptr<StoredBytes> bytes, const at::Tensor& tensor)
      : store_(std::move(store)), bytes_(std::move(bytes)), geometry_(tensor) {}
  at::Tensor get() override { return store_->take(*bytes_, geometry_); }

 private:
  std::shared_ptr<Impl> store_;
  std::shared_ptr<StoredBytes> bytes_;
  lens::Geometry geometry_;
};

/// A small piece of what somebody else holds, a row of the data for example, is not ours to move.
bool ActivationStore::Impl::stays(const at::Tensor& tensor) const {
  if (lens::is_of_parameter(tensor) || !lens::is_plain(tensor)) return true;
  const auto all = static_cast<int64_t>(tensor.storage().nbytes());
  const auto own = static_cast<int64_t>(tensor.nbytes());
  return all < options_.smallest_bytes || (tensor.is_leaf() && 2 * own < all);
}

std::unique_ptr<lens::SavedTensor> ActivationStore::Impl::save(const at::Tensor& tensor) {
  if (stays(tensor)) return lens::keep_as_is(tensor);
  if (!tensor.is_cpu()) {
    throw Error(base::unsupported("activation store: a tensor on " + tensor.device().str() +
                                  " was saved; it moves those of the CPU; end its scope"));
  }
  const std::lock_guard lock(mutex_);
  auto bytes = find(tensor);
  if (!bytes) bytes = store(tensor);
  ++bytes->num_saved;
  return std::make_unique<Saved>(shared_from_this(), std::move(bytes), tensor);
}

std::shared_ptr<StoredBytes> ActivationStore::Impl::find(const at::Tensor& tensor) {
  const auto place = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (place == known_.end()) return nullptr;
  const Known& known = place->second;
  if (known.storage.expired() || known.version != tensor._version()) return nullptr;
  return known.bytes.lock();
}

std::shared_ptr<StoredBytes> ActivationStore::Impl::store(const at::Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t whole = base::whole_blocks(size);
  finish_writes(std::max<int64_t>(options_.window_bytes - whole, 0));
  const int64_t at = place(whole);
  stored_bytes_ += whole;
  // Weak pointers of ours keep what deletes alive: it lets go of us once it has.
  const std::shared_ptr<StoredBytes> bytes(new StoredBytes(next_++, at, whole),
                                           [self = shared_from_this()](StoredBytes* gone) mutable {
                                             self->release(*gone);
                                             delete gone;
                                             self.reset();
                                           });
  alive_[bytes->number] = bytes.get();
  bytes->memory = take_memory(whole);
  std::memcpy(bytes->memory.get(), tensor.storage().data(), static_cast<size_t>(size));
  bytes->writing = file_.write(bytes->at, bytes->memory, whole).or_throw();
  writing_.push_back(bytes);
  writing_bytes_ += whole;
  std::erase_if(known_, [](const auto& entry) { return entry.second.storage.expired(); });
  known_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                          Known{tensor.storage().getWeakStorageImpl(),
                                static_cast<uint32_t>(tensor._version()), bytes});
  return bytes;
}

int64_t ActivationStore::Impl::place(int64_t bytes) {
  auto& places = free_places_[bytes];
  if (!places.empty()) {
    const int64_t at = places.back();
    places.pop_back();
    return at;
  }
  if (end_ + bytes > file_.num_bytes()) {
    base::throw_if_error(
        file_.grow(std::max(end_ + bytes, end_ + options_.window_bytes)).at("activation store"));
  }
  end_ += bytes;
  return end_ - bytes;
}

ScratchFile::Memory ActivationStore::Impl::take_memory(int64_t bytes) {
  auto& found = free_memory_[bytes];
  if (found.empty()) return base::scratch_memory(bytes).or_throw();
  ScratchFile::Memory memory = std::move(found.back());
  found.pop_back();
  free_bytes_ -= bytes;
  return memory;
}

/// Fresh pages cost more than the copy; those of a window are used again, if no tensor has them.
void ActivationStore::Impl::give_memory(StoredBytes& bytes) {
  ScratchFile::Memory memory = std::exchange(bytes.memory, nullptr);
  if (!memory || memory.use_count() > 1 || free_bytes_ + bytes.bytes > options_.window_bytes)
    return;
  free_memory_[bytes.bytes].push_back(std::move(memory));
  free_bytes_ += bytes.bytes;
}

void ActivationStore::Impl::finish_write(StoredBytes& bytes) {
  if (!bytes.writing) return;
  writing_bytes_ -= bytes.bytes;
  base::throw_if_error(
      file_.wait(*std::exchange(bytes.writing, std::nullopt)).at("activation store"));
}

/// Waits for the oldest until no more than `most_bytes` are under way.
void ActivationStore::Impl::finish_writes(int64_t most_bytes) {
  while (writing_bytes_ > most_bytes && !writing_.empty()) {
    const auto oldest = writing_.front().lock();
    writing_.pop_front();
    if (!oldest || !oldest->writing) continue;
    finish_write(*oldest);
    if (oldest->num_taken == 0) give_memory(*oldest);
  }
}

void ActivationStore::Impl::read(StoredBytes& bytes) {
  if (bytes.memory) return;  // still there, or on its way
  bytes.memory = take_memory(bytes.bytes);
  bytes.reading = file_.read(bytes.at, bytes.memory, bytes.bytes).or_throw();
}

/// Backward goes from the last that was saved to the first.
void ActivationStore::Impl::read_ahead(const StoredBytes& before) {
  int64_t ahead = 0;
  auto place = alive_.find(before.number);
  while (place != alive_.begin()) {
    StoredBytes& bytes = *(--place)->second;
    ahead += bytes.bytes;
    if (ahead > options_.window_bytes) return;
    read(bytes);
  }
}

at::Tensor ActivationStore::Impl::take(StoredBytes& bytes, const lens::Geometry& geometry) {
  const std::lock_guard lock(mutex_);
  read(bytes);
  read_ahead(bytes);
  if (bytes.reading) {
    const Status status = file_.wait(*std::exchange(bytes.reading, std::nullopt));
    if (!status.ok()) bytes.memory.reset();
    base::throw_if_error(status.at("activation store"));
  }
  const at::Tensor tensor = geometry.over(bytes.memory.get(), bytes.memory);
  if (++bytes.num_taken < bytes.num_saved) return tensor;
  bytes.num_taken = 0;  // a graph that is kept reads it once more
  if (!bytes.writing) bytes.memory.reset();
  return tensor;
}

/// From the end of a graph, which cannot fail: what is still under way keeps its place for ever.
void ActivationStore::Impl::release(StoredBytes& bytes) {
  const std::lock_guard lock(mutex_);
  alive_.erase(bytes.number);
  stored_bytes_ -= bytes.bytes;
  bool ended = true;
  if (bytes.writing) writing_bytes_ -= bytes.bytes;
  for (const auto& ticket : {bytes.writing, bytes.reading}) {
    if (ticket) ended &= file_.wait(*ticket).ok();
  }
  if (!ended) return;
  free_places_[bytes.bytes].push_back(bytes.at);
  give_memory(bytes);
}

ActivationStore::ActivationStore(const ActivationOptions& options)
    : impl_(std::make_shared<Impl>(options)) {}
ActivationStore::~ActivationStore() = default;

ActivationStore::Scope ActivationStore::offload() { return Scope(*impl_); }

int64_t ActivationStore::stored_bytes() const { return impl_->stored_bytes(); }

const std::string& ActivationStore::description() const { return impl_->description(); }

}  // namespace hanji::parallel
