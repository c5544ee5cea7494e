#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/offload/internal/state_store.h"

namespace hanji::parallel {
namespace {

c10::StorageImpl& memory_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

int64_t block_bytes(const at::Tensor& tensor) {
  return base::whole_blocks(tensor.numel() * static_cast<int64_t>(tensor.element_size()));
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

void StateStore::add_piece(std::unique_ptr<FlatOptimizer> optimizer, int64_t begin, int64_t end) {
  Part& part = parts_.back();
  Piece piece{std::move(optimizer), parts_.size() - 1, begin, end, {}};
  int64_t bytes = 0;
  for (const NamedParameter& entry : piece.optimizer->state()) {
    check_state(*piece.optimizer, entry, end - begin);
    if (begin == 0) part.kinds.push_back({entry.name, entry.tensor.scalar_type(), 0});
    bytes += block_bytes(entry.tensor);
    piece.state.push_back(entry.tensor);
  }
  window_bytes_ = std::max(window_bytes_, bytes);
  pieces_.push_back(std::move(piece));
  detach(pieces_.size() - 1);
}

void StateStore::open(const std::filesystem::path& folder, const base::ScratchOptions& options) {
  int64_t bytes = 0;
  for (Part& part : parts_) {
    for (Kind& kind : part.kinds) {
      kind.at = bytes;
      bytes += base::whole_blocks(part.count * static_cast<int64_t>(c10::elementSize(kind.dtype)));
    }
  }
  auto file = base::ScratchFile::create(folder, bytes, options);
  base::throw_if_error(file.status().at("offloaded optimizer"));
  file_.emplace(*std::move(file));
  windows_.resize(std::min(windows_.size(), std::max<size_t>(pieces_.size(), 1)));
  for (Window& window : windows_) window.memory = base::scratch_memory(window_bytes_).or_throw();
}

void StateStore::attach(size_t index) {
  std::byte* data = window_of(index).memory.get();
  for (const at::Tensor& tensor : pieces_[index].state) {
    memory_of(tensor).set_data_ptr_noswap(c10::DataPtr(data, c10::kCPU));
    data += block_bytes(tensor);
  }
}

void StateStore::detach(size_t index) {
  for (const at::Tensor& tensor : pieces_[index].state) {
    memory_of(tensor).set_data_ptr_noswap(c10::DataPtr(nullptr, c10::kCPU));
  }
}

void StateStore::begin_transfers(size_t index, bool writes) {
  const Piece& piece = pieces_[index];
  Window& window = window_of(index);
  int64_t offset = 0;
  for (size_t i = 0; i < piece.state.size(); ++i) {
    const at::Tensor& tensor = piece.state[i];
    const int64_t at =
        parts_[piece.part].kinds[i].at + piece.begin * static_cast<int64_t>(tensor.element_size());
    const base::ScratchFile::Memory memory(window.memory, window.memory.get() + offset);
    const int64_t bytes = block_bytes(tensor);
    auto ticket = writes ? file_->write(at, memory, bytes) : file_->read(at, memory, bytes);
    base::throw_if_error(note(ticket.status()));
    window.open.push_back(*ticket);
    offset += bytes;
  }
}

void StateStore::wait(Window& window) {
  for (const auto ticket : std::exchange(window.open, {})) {
    base::throw_if_error(note(file_->wait(ticket)));
  }
}

/// The first failure stays: what is in the file is then of different steps.
Status StateStore::note(const Status& status) {
  if (!status.ok() && failure_.ok()) failure_ = status.at("offloaded optimizer");
  return failure_;
}

void StateStore::check_usable() const { base::throw_if_error(failure_); }

void StateStore::for_each(const std::function<void(FlatOptimizer&)>& update) {
  check_usable();
  try {
    run(update);
  } catch (const std::exception& error) {
    static_cast<void>(note(base::internal(error.what())));
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
  check_usable();
  for (Window& window : windows_) wait(window);
}

at::Tensor StateStore::map_kind(const Part& part, const Kind& kind) {
  const auto options = at::TensorOptions(kind.dtype);
  const int64_t bytes = part.count * static_cast<int64_t>(c10::elementSize(kind.dtype));
  auto memory = file_->map(kind.at, bytes).or_throw();
  void* data = memory.get();
  return at::from_blob(
      data, {part.count}, [memory = std::move(memory)](void*) {}, options);
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
