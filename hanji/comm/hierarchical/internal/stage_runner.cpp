#include "hanji/comm/hierarchical/internal/stage_runner.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm::hierarchical {
namespace {

constexpr std::string_view kStaging = "staging between hosts";

bool is_in_place(const Request& request) {
  const at::Tensor &input = request.input, &output = request.output;
  return !input.defined() || !output.defined() || input.const_data_ptr() == output.const_data_ptr();
}

}  // namespace

bool Begun::over() const { return group == nullptr || group->state()->done(sequence); }

void StageRunner::prepare(const Request& request) {
  request_ = &request;
  begun_.clear();
  Shape shape{.routine = request.routine,
              .op = request.op,
              .count = request.count,
              .root = request.root,
              .counts = request.counts,
              .element_bytes = static_cast<int64_t>(size_of(request.dtype)),
              .in_place = is_in_place(request)};
  if (shape_ != shape) {
    shape_.reset();
    program_ = make_program(shape, peers_.hosts, peers_.rank);
    shape_ = std::move(shape);
  }
  make_staging(Buffer::kWide, program_.wide);
  make_staging(Buffer::kRail, program_.rail);
  make_staging(Buffer::kPiece, program_.piece);
}

StageRunner::Progress StageRunner::step() {
  const std::vector<Stage>& stages = program_.stages;
  if (begun_.size() < stages.size()) {
    const Stage& stage = stages[begun_.size()];
    if (stage.after >= 0 && !begun_[stage.after].over()) return Progress::kNone;
    begun_.push_back(begin(stage));
    return Progress::kBegan;
  }
  return std::ranges::all_of(begun_, &Begun::over) ? Progress::kOver : Progress::kNone;
}

void StageRunner::make_staging(Buffer buffer, int64_t elements) {
  at::Tensor& staging = staging_[static_cast<size_t>(buffer)];
  const int64_t bytes = std::max<int64_t>(elements * shape_->element_bytes, 1);
  if (staging.defined() && staging.numel() >= bytes) return;
  staging.reset();
  Heap heap = peers_.local.heap();
  staging = heap.empty({bytes}, at::kByte, kStaging);
}

/// The ranks have agreed on the call, so all of them are here to be joined.
Begun StageRunner::begin_with_all() {
  if (!all_) all_ = peers_.join_all();
  Request request = *request_;
  request.deadline = peers_.deadline_in(*all_, request.deadline);
  request.copy_out = at::Tensor();
  request.agreed = true;
  return {&*all_, all_->state()->submit(std::move(request)).sequence};
}

Begun StageRunner::begin(const Stage& stage) {
  if (stage.kind == Stage::Kind::kAll) return begin_with_all();
  if (stage.kind == Stage::Kind::kMove) move(stage.moves);
  if (stage.kind == Stage::Kind::kDivide) divide(stage.to);
  if (stage.kind == Stage::Kind::kMove || stage.kind == Stage::Kind::kDivide) return {};
  const Request& whole = *request_;
  const Group& group = stage.kind == Stage::Kind::kLocal ? peers_.local : *peers_.rail_peers;
  Request request{.routine = stage.routine,
                  .op = stage.op,
                  .dtype = whole.dtype,
                  .count = stage.count,
                  .root = stage.root,
                  .tag = whole.tag,
                  .deadline = peers_.deadline_in(group, whole.deadline),
                  .input = tensor_of(stage.from),
                  .output = tensor_of(stage.to),
                  .label = whole.label,
                  .call_site = whole.call_site,
                  .counts = stage.counts,
                  .agreed = true};
  return {&group, group.state()->submit(std::move(request)).sequence};
}

const at::Tensor& StageRunner::base_of(Buffer buffer) const {
  switch (buffer) {
    case Buffer::kInput: return request_->input;
    case Buffer::kOutput: return request_->output;
    default: return staging_[static_cast<size_t>(buffer)];
  }
}

/// The tensor that it is part of lives as long: calls that are lost may still use it.
at::Tensor StageRunner::tensor_of(const Piece& piece) const {
  if (piece.buffer == Buffer::kNone) return {};
  const at::Tensor& base = base_of(piece.buffer);
  auto* begin = static_cast<std::byte*>(base.data_ptr()) + piece.begin * shape_->element_bytes;
  return at::from_blob(
      begin, {piece.count}, [base](void*) {}, to_scalar_type(request_->dtype));
}

void StageRunner::move(const std::vector<Move>& moves) const {
  const auto address = [this](const Piece& piece) {
    return static_cast<std::byte*>(base_of(piece.buffer).data_ptr()) +
           piece.begin * shape_->element_bytes;
  };
  for (const Move& one : moves) {
    std::memcpy(address(one.to), address(one.from), one.from.count * shape_->element_bytes);
  }
}

void StageRunner::divide(const Piece& piece) const {
  at::Tensor sum = tensor_of(piece);
  if (!sum.is_floating_point()) {
    sum.div_(peers_.hosts.num_ranks(), "trunc");
  } else if (sum.element_size() < 4) {
    sum.copy_(sum.to(at::kFloat).div_(peers_.hosts.num_ranks()));
  } else {
    sum.div_(peers_.hosts.num_ranks());
  }
}

}  // namespace hanji::comm::hierarchical
