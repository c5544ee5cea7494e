#include "hanji/parallel/offload/offloaded_optimizer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/offload/internal/state_store.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

void check_offload(const OffloadOptions& options, const std::vector<FlatPart>& parts) {
  if (options.piece_elements < base::ScratchFile::kBlock ||
      options.piece_elements % base::ScratchFile::kBlock != 0) {
    throw Error(base::invalid_argument(
        "offloaded: piece_elements is " + std::to_string(options.piece_elements) +
        "; it must be a multiple of 4096, so that every piece begins at a block of the file"));
  }
  if (options.num_windows < 2) {
    throw Error(base::invalid_argument("offloaded: num_windows is " +
                                       std::to_string(options.num_windows) +
                                       "; one is updated and one read, so at least 2"));
  }
  for (const FlatPart& part : parts) {
    if (part.parameters.is_cpu() && part.gradients.is_cpu()) continue;
    throw Error(base::unsupported(
        "offloaded: the parameters are on " + part.parameters.device().str() +
        "; a state in a file needs parameters and gradients on the CPU, where its windows are"));
  }
}

/// Of all state at once: it would be what does not fit.
at::Tensor state_in_windows(const at::Tensor& like) {
  return without_memory({like.numel()}, like.scalar_type(),
                        "the state lies in a file; read it by state()");
}

/// Some elements of a buffer, which of one in a file have memory in a window only.
at::Tensor cut(const at::Tensor& buffer, const FilePlace& place, int64_t begin, int64_t end) {
  if (!place) return buffer.slice(0, begin, end);
  return without_memory({end - begin}, buffer.scalar_type(),
                        "offloaded: the shards lie in a file, and have memory during a step only; "
                        "an optimizer that reads them when it is made needs them in memory");
}

/// What lies in [begin, end) of a part, as a part of its own.
FlatPart cut_part(const FlatPart& part, int64_t begin, int64_t end) {
  FlatPart own{cut(part.parameters, part.parameters_in, begin, end),
               cut(part.gradients, part.gradients_in, begin, end),
               {},
               state_in_windows};
  for (const FlatPiece& piece : part.pieces) {
    const int64_t first = std::clamp(piece.range.begin, begin, end);
    const int64_t last = std::clamp(piece.range.end, first, end);
    own.pieces.push_back({piece.name,
                          piece.shape,
                          piece.first + first - piece.range.begin,
                          {first - begin, last - begin},
                          piece.group});
  }
  return own;
}

/// What of a piece of `part`, from element `begin` on, lies in files of the part's owner.
std::vector<Lying> lying_of(const FlatPart& part, const FlatPart& piece, int64_t begin) {
  std::vector<Lying> found;
  const auto add = [&](const at::Tensor& tensor, const FilePlace& place, bool changes) {
    if (!place) return;
    const int64_t at = place.at + begin * static_cast<int64_t>(tensor.element_size());
    found.push_back({tensor, place.file, at, changes});
  };
  add(piece.parameters, part.parameters_in, true);
  add(piece.gradients, part.gradients_in, false);
  return found;
}

}  // namespace

OffloadedOptimizer::OffloadedOptimizer(const MakeOptimizer& make, const OffloadOptions& options,
                                       std::vector<FlatPart> parts) {
  check_offload(options, parts);
  store_ = std::make_unique<StateStore>(options.num_windows);
  for (const FlatPart& part : parts) {
    const int64_t count = part.parameters.numel();
    store_->begin_part(part.pieces, count);
    for (int64_t begin = 0; begin < count; begin += options.piece_elements) {
      const int64_t end = std::min(count, begin + options.piece_elements);
      const FlatPart piece = cut_part(part, begin, end);
      store_->add_piece(make(piece, {}), begin, end, lying_of(part, piece, begin));
    }
  }
  store_->open(options.folder,
               {.engine = options.engine, .timeout = options.timeout, .log = options.log});
}

OffloadedOptimizer::~OffloadedOptimizer() = default;

void OffloadedOptimizer::step(double learning_rate, double gradient_divisor) {
  const at::NoGradGuard no_grad;
  store_->for_each([&](FlatOptimizer& piece) {
    piece.set_num_updates(num_updates_);
    piece.step(learning_rate, gradient_divisor);
  });
  ++num_updates_;
}

std::vector<NamedParameter> OffloadedOptimizer::state() const { return store_->map(); }

std::vector<at::Tensor> OffloadedOptimizer::values(std::string_view kind) const {
  return store_->map_pieces(kind);
}

int64_t OffloadedOptimizer::window_bytes() const { return store_->window_bytes(); }

const std::string& OffloadedOptimizer::description() const { return store_->description(); }

std::unique_ptr<OffloadedOptimizer> offloaded(const MakeOptimizer& make,
                                              const OffloadOptions& options,
                                              std::vector<FlatPart> parts) {
  return std::make_unique<OffloadedOptimizer>(make, options, std::move(parts));
}

}  // namespace hanji::parallel
