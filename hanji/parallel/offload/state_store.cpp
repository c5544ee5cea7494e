#include <algorithm>
#include <exception>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/offload/internal/state_store.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

const char* const kOwner = "offloaded optimizer";
const char* const kOutsideWindow =
    "the tensor lies in a file and has memory only while offloaded() updates its piece; an "
    "optimizer that reads parameters when it is made, or state that is read here, must be in "
    "memory";

int64_t block_bytes(const at::Tensor& tensor) {
  return offload_bytes(tensor.numel(), tensor.element_size());
}

/// A state tensor of a piece must hold one element for each of its parameters.
void check_state(const FlatOptimizer& optimizer, const NamedParameter& entry, int64_t count) {
  if (optimizer.is_element_wise() && entry.tensor.numel() == count &&
      entry.tensor.is_contiguous() && entry.tensor.storage_offset() == 0) {
    return;
  }
  throw Error(base::unsupported(
      "offloaded: the optimizer's " + entry.name +
      " does not lie as the parameters do, so it cannot be cut into pieces; keep this optimizer in "
      "memory, or take flat_adamw, flat_sgd or flat_lion"));
}

}  // namespace

void StateStore::begin_part(std::vector<FlatPiece> names, int64_t count) {
  parts_.push_back({std::move(names), count, {}});
}

void StateStore::add_piece(std::unique_ptr<FlatOptimizer> optimizer, int64_t begin, int64_t end,
                           std::vector<Lying> shards) {
  Part& part = parts_.back();
  Piece piece{std::move(optimizer), parts_.size() - 1, begin, end, {}};
  for (const NamedParameter& entry : piece.optimizer->state()) {
    check_state(*piece.optimizer, entry, end - begin);
    if (begin == 0) part.kinds.push_back({entry.name, entry.tensor.scalar_type(), 0});
    piece.tensors.push_back({entry.tensor, nullptr, 0});
  }
  std::ranges::move(shards, std::back_inserter(piece.tensors));
  int64_t bytes = 0;
  for (const Lying& lying : piece.tensors) bytes += block_bytes(lying.tensor);
  window_bytes_ = std::max(window_bytes_, bytes);
  pieces_.push_back(std::move(piece));
  detach(pieces_.size() - 1);
}

void StateStore::open(const std::filesystem::path& folder, const base::ScratchOptions& options) {
  int64_t bytes = 0;
  for (Part& part : parts_) {
    for (Kind& kind : part.kinds) {
      kind.at = bytes;
      bytes += offload_bytes(part.count, c10::elementSize(kind.dtype));
    }
  }
  file_ = OffloadFile::create(kOwner, folder, bytes, options).or_throw();
  for (Piece& piece : pieces_) {
    const std::vector<Kind>& kinds = parts_[piece.part].kinds;
    for (size_t i = 0; i < kinds.size(); ++i) {
      Lying& state = piece.tensors[i];
      state.file = file_;
      state.at = kinds[i].at + piece.begin * static_cast<int64_t>(state.tensor.element_size());
    }
  }
  windows_.resize(std::min(windows_.size(), std::max<size_t>(pieces_.size(), 1)));
  for (Window& window : windows_) window.memory = base::scratch_memory(window_bytes_).or_throw();
}

void StateStore::attach(size_t index) {
  std::byte* data = window_of(index).memory.get();
  for (const Lying& lying : pieces_[index].tensors) {
    lend_memory(lying.tensor, data);
    data += block_bytes(lying.tensor);
  }
}

void StateStore::detach(size_t index) {
  for (const Lying& lying : pieces_[index].tensors) take_memory(lying.tensor, kOutsideWindow);
}

void StateStore::begin_transfers(size_t index, bool writes) {
  Window& window = window_of(index);
  int64_t offset = 0;
  for (const Lying& lying : pieces_[index].tensors) {
    const OffloadFile::Memory memory(window.memory, window.memory.get() + offset);
    const int64_t bytes = block_bytes(lying.tensor);
    offset += bytes;
    if (writes && !lying.changes) continue;
    OffloadFile& file = *lying.file;
    window.open.emplace_back(
        &file, writes ? file.write(lying.at, memory, bytes) : file.read(lying.at, memory, bytes));
  }
}

void StateStore::wait(Window& window) {
  for (const auto& [file, ticket] : std::exchange(window.open, {})) file->wait(ticket);
}

void StateStore::for_each(const std::function<void(FlatOptimizer&)>& update) {
  file_->check_usable();
  for (const Piece& piece : pieces_) {
    for (const Lying& lying : piece.tensors) lying.file->check_updates_allowed();
  }
  try {
    run(update);
  } catch (const std::exception& error) {
    const Status status = base::internal(error.what());
    file_->fail(status);
    for (const Piece& piece : pieces_) {
      for (const Lying& lying : piece.tensors) lying.file->fail(status);
    }
    throw;
  }
}

void StateStore::run(const std::function<void(FlatOptimizer&)>& update) {
  const size_t ahead = std::max<size_t>(windows_.size() - 1, 2) - 1;  // one window is being written
  size_t next = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    for (; next < pieces_.size() && next <= i + ahead; ++next) {
      wait(window_of(next));  // for the write of the piece that was there
      begin_transfers(next, /*writes=*/false);
    }
    wait(window_of(i));
    attach(i);
    update(*pieces_[i].optimizer);
    detach(i);
    begin_transfers(i, /*writes=*/true);
  }
}

void StateStore::flush() {
  file_->check_usable();
  for (Window& window : windows_) wait(window);
}

at::Tensor StateStore::map_kind(const Part& part, const Kind& kind) {
  return file_->map(kind.at, part.count, kind.dtype);
}

std::vector<NamedParameter> StateStore::map() {
  flush();
  std::vector<NamedParameter> found;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::string prefix = parts_.size() == 1 ? "" : "part " + std::to_string(i) + " ";
    for (const Kind& kind : parts_[i].kinds) {
      found.push_back({prefix + kind.name, map_kind(parts_[i], kind)});
    }
  }
  return found;
}

std::vector<at::Tensor> StateStore::map_pieces(std::string_view name) {
  flush();
  std::vector<at::Tensor> found;
  for (const Part& part : parts_) {
    const auto kind = std::ranges::find(part.kinds, name, &Kind::name);
    if (kind == part.kinds.end() && part.count > 0) {
      std::string known;
      for (const Kind& each : part.kinds) known += (known.empty() ? "" : ", ") + each.name;
      throw Error(base::not_found("offloaded: no state named " + std::string(name) + "; there is " +
                                  (known.empty() ? "none" : known)));
    }
    if (kind == part.kinds.end()) continue;
    const at::Tensor whole = map_kind(part, *kind);
    for (const FlatPiece& piece : part.names) {
      if (!piece.range.empty()) found.push_back(whole.slice(0, piece.range.begin, piece.range.end));
    }
  }
  return found;
}

}  // namespace hanji::parallel
