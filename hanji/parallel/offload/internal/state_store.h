#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/offload_file.h"

namespace hanji::parallel {

/// A tensor of a piece that has memory only while the piece is in a window.
struct Lying {
  at::Tensor tensor;
  std::shared_ptr<OffloadFile> file;
  int64_t at = 0;
  bool changes = true;  ///< By an update: it is written again.
};

/// The state of optimizers of consecutive pieces, in a file but for a few windows; and parameters
/// and gradients that lie in a file of their owner, which go through the same windows.
///
/// The file, for each part, for each kind of state: the elements as the parameters lie, filled up to
/// a block. Tensors of a piece have memory only while the piece is in a window: their storages are
/// pointed there.
class StateStore {
 public:
  explicit StateStore(int num_windows) : windows_(static_cast<size_t>(num_windows)) {}

  /// Pieces that follow belong to a part of `count` elements.
  void begin_part(std::vector<FlatPiece> names, int64_t count);
  /// Takes the memory of its state away, which must be zeros or not there. `shards`: what of its
  /// parameters and gradients lies in files.
  void add_piece(std::unique_ptr<FlatOptimizer> optimizer, int64_t begin, int64_t end,
                 std::vector<Lying> shards);
  /// Makes the file, once all pieces are known.
  void open(const std::filesystem::path& folder, const base::ScratchOptions& options);

  /// Calls `update` for every piece, in order, with all of it in memory.
  void for_each(const std::function<void(FlatOptimizer&)>& update);

  std::vector<NamedParameter> map();
  std::vector<at::Tensor> map_pieces(std::string_view kind);
  int64_t window_bytes() const { return window_bytes_ * static_cast<int64_t>(windows_.size()); }
  const std::string& description() const { return file_->description(); }

 private:
  struct Kind {
    std::string name;
    at::ScalarType dtype;
    int64_t at = 0;  ///< In the file.
  };
  struct Part {
    std::vector<FlatPiece> names;
    int64_t count = 0;
    std::vector<Kind> kinds;
  };
  struct Piece {
    std::unique_ptr<FlatOptimizer> optimizer;
    size_t part = 0;
    int64_t begin = 0, end = 0;
    std::vector<Lying> tensors;  ///< The state, then shards.
  };
  /// Memory of one piece, and the transfers that use it.
  struct Window {
    OffloadFile::Memory memory;
    std::vector<std::pair<OffloadFile*, OffloadFile::Ticket>> open;
  };

  void run(const std::function<void(FlatOptimizer&)>& update);
  Window& window_of(size_t piece) { return windows_[piece % windows_.size()]; }
  void begin_transfers(size_t piece, bool writes);
  void wait(Window& window);
  void attach(size_t piece);
  void detach(size_t piece);
  void flush();
  at::Tensor map_kind(const Part& part, const Kind& kind);

  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  std::vector<Window> windows_;
  std::shared_ptr<OffloadFile> file_;
  int64_t window_bytes_ = 0;
};

}  // namespace hanji::parallel
