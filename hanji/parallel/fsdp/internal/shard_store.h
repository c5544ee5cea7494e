#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/fsdp/sharded.h"
#include "hanji/parallel/offload_file.h"

namespace hanji::parallel {

/// This rank's shards of units while nobody computes with them: in a file, read ahead and written
/// behind through windows of memory, each as large as the largest shard.
///
/// Cost    memory: num_windows of the options, and as many more as are in use at one time, whatever
///         the number of units.
/// Errors  those of OffloadFile.
class ShardStore {
 public:
  struct Place {
    int64_t at = 0;
    int64_t count = 0;
    at::ScalarType dtype = at::kFloat;
  };

  /// Takes room for shards of so many bytes each. A collective of the groups: where one rank cannot
  /// have the room, all throw.
  ShardStore(std::string owner, const ShardOffload& options, const std::vector<int64_t>& bytes,
             const std::vector<const comm::Group*>& groups);
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  /// The next of the shards that the constructor was told of.
  Place place(int64_t count, at::ScalarType dtype);
  /// Elements in memory, of any value, for write(). The window is free again when the tensor is gone.
  at::Tensor window(const Place& place);
  /// Begins to read what read() will be asked for; or not, if all windows are in use.
  void read_ahead(const Place& place);
  at::Tensor read(const Place& place);
  /// Begins to write a window, which nobody changes from here on.
  void write(const Place& place, const at::Tensor& window);
  /// Forgets what was read ahead, which somebody is about to change.
  void drop_ahead();

  FilePlace in_file(const Place& place) const { return {file_, place.at}; }
  OffloadFile& file() { return *file_; }
  /// "12.6 MB in a file, 3 windows of 1.05 MB; io_uring, past the page cache".
  std::string description() const;

 private:
  struct Windows;
  struct Transfer {
    int64_t at;
    OffloadFile::Ticket ticket;
    at::Tensor window;
  };
  bool make_room();
  void begin_read(const Place& place);
  std::vector<Transfer>::iterator find_read(const Place& place);
  OffloadFile::Memory memory_of(const at::Tensor& window) const;

  std::shared_ptr<OffloadFile> file_;
  std::shared_ptr<Windows> windows_;
  std::vector<Transfer> reads_;
  std::deque<Transfer> writes_;
  size_t num_windows_;
  int64_t window_bytes_ = 0;
  int64_t num_bytes_ = 0;
  int64_t next_ = 0;
};

/// One shard in a store: a tensor that has memory only between bring() or make() and keep() or drop().
class StoredShard {
 public:
  /// The next of the store's places; to read the tensor otherwise throws `why`.
  StoredShard(std::shared_ptr<ShardStore> store, int64_t count, at::ScalarType dtype,
              std::string why);

  const at::Tensor& tensor() const { return tensor_; }
  FilePlace in_file() const { return store_->in_file(place_); }
  void read_ahead() { store_->read_ahead(place_); }
  /// With the values that it has.
  void bring();
  /// With any values.
  void make();
  /// What it holds now is written behind.
  void keep();
  void drop();

 private:
  void lend(at::Tensor window);

  std::shared_ptr<ShardStore> store_;
  ShardStore::Place place_;
  at::Tensor tensor_;
  at::Tensor window_;  ///< Undefined: it has no memory.
  std::string why_;
};

}  // namespace hanji::parallel
