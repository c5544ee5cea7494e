#include "hanji/parallel/server/internal/server_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/message.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {
namespace {

/// Each worker one grain, unless grains are told.
schedule::GrainTree tree_over(const ParameterServerOptions& options, size_t num_workers) {
  if (options.num_grains > 0) return schedule::grain_tree(options.num_grains, options.owners);
  std::vector<layout::Range> owners;
  const auto count = static_cast<int64_t>(num_workers);
  for (int64_t worker = 0; worker < count; ++worker) owners.push_back({worker, worker + 1});
  return schedule::grain_tree(count, owners);
}

}  // namespace

ServerState::ServerState(std::vector<NamedParameter> parameters, const comm::Group& group,
                         const ParameterServerOptions& options, layout::FlatLayout flat,
                         layout::ServerShares shares)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(options),
      layout_(std::move(flat)),
      shares_(std::move(shares)),
      tree_(tree_over(options_, shares_.workers.size())) {
  const auto found = std::ranges::find(shares_.workers, group_.rank());
  if (found != shares_.workers.end()) {
    worker_ = static_cast<int>(found - shares_.workers.begin());
    place_worker();
  }
  if (is_server()) place_server();
  for (const NamedParameter& entry : parameters_) {
    add_gradient_hook(entry.tensor, "parameter_server", [] {});  // other strategies see it
  }
}

ServerState::~ServerState() {
  for (const NamedParameter& entry : parameters_) remove_gradient_hook(entry.tensor);
}

void ServerState::place_worker() {
  if (options_.num_grains > 0) fold_.emplace(options_.num_grains, options_.owners, worker_);
  const auto dtype = parameters_[0].tensor.scalar_type();
  flat_ = group_.heap().zeros({layout_.count}, dtype, "parameters");
  std::vector<at::Tensor> tensors;
  for (const NamedParameter& entry : parameters_) tensors.push_back(entry.tensor);
  move_into_flat(tensors, layout_, flat_);
  gradients_ =
      group_.heap().zeros({fold_ ? fold_->num_buffers() : 1, layout_.count}, dtype, "gradients");
}

void ServerState::place_server() {
  const layout::Range range = own_range();
  const auto dtype = parameters_[0].tensor.scalar_type();
  weights_ = is_worker() ? flat_.slice(0, range.begin, range.end) : held_weights();
  sum_ = group_.heap().zeros({range.size()}, dtype, "gradients");
  FlatPart part{weights_, sum_, flat_pieces(parameters_, layout_, range, options_.rule)};
  const SumOverParts sum = [this](at::Tensor& values) { sum_over_servers(values); };
  optimizer_ = options_.make_optimizer ? options_.make_optimizer(std::move(part), sum)
                                       : flat_adamw(std::move(part));
}

/// By the first server, in their order, by messages: the other ranks take no part.
void ServerState::sum_over_servers(at::Tensor& values) {
  if (shares_.servers.size() == 1) return;
  if (options_.timing == ServerTiming::kAsynchronous) {
    throw Error(base::unsupported(
        "parameter server: this optimizer sums over a whole parameter, but asynchronous servers "
        "update their ranges at different times; use one server, or another optimizer"));
  }
  const int first = shares_.servers[0];
  Works works;
  if (group_.rank() == first) {
    for (size_t i = 1; i < shares_.servers.size(); ++i) {
      at::Tensor other = at::zeros_like(values);
      Works arrival;
      receive_from(other, shares_.servers[i], "statistics", arrival);
      arrival[0].wait();
      values.add_(other);
    }
    for (size_t i = 1; i < shares_.servers.size(); ++i) {
      send_to(values, shares_.servers[i], "statistics", works);
    }
  } else {
    send_to(values, first, "statistics", works);
    receive_from(values, first, "statistics", works);
  }
  for (comm::Work& work : works) work.wait();
}

/// The own range of the module's parameters, which stay where they are.
at::Tensor ServerState::held_weights() const {
  const at::NoGradGuard no_grad;
  const layout::Range range = own_range();
  at::Tensor held =
      group_.heap().zeros({range.size()}, parameters_[0].tensor.scalar_type(), "parameters");
  const auto pieces = flat_pieces(parameters_, layout_, range, options_.rule);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const FlatPiece& piece = pieces[i];
    if (piece.range.empty()) continue;
    held.slice(0, piece.range.begin, piece.range.end)
        .copy_(parameters_[i].tensor.reshape({-1}).slice(0, piece.first,
                                                         piece.first + piece.range.size()));
  }
  return held;
}

void ServerState::collect(const at::Tensor& row) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    at::Tensor target = slot(row, i);
    if (!gradient.defined()) {
      target.zero_();
    } else if (gradient.layout() != c10::kStrided) {
      target.copy_(gradient.to_dense());
    } else if (gradient.data_ptr() != target.data_ptr()) {
      target.copy_(gradient);
    }
  }
}

at::Tensor ServerState::slot(const at::Tensor& row, size_t parameter) const {
  return alias(row, layout_.offsets[parameter], parameters_[parameter].tensor.sizes());
}

std::vector<at::Tensor> ServerState::gradient_slots() const {
  if (!is_worker()) {
    throw Error(base::invalid_argument(
        "gradient_slots(): this rank only serves and computes no gradient; ask is_worker()"));
  }
  std::vector<at::Tensor> slots;
  const at::Tensor row = gradients_[fold_ && fold_->is_open() ? fold_->step().buffer : 0];
  for (size_t i = 0; i < parameters_.size(); ++i) slots.push_back(slot(row, i));
  return slots;
}

void ServerState::begin_grain(int64_t index) {
  if (!fold_) {
    throw Error(base::invalid_argument(
        "grain(" + std::to_string(index) +
        ") needs num_grains in the options of parameter_server(), and a rank that computes"));
  }
  if (fold_->is_open()) close_grain();
  fold_->begin(index);
  for (const auto& entry : parameters_) entry.tensor.mutable_grad().reset();
}

void ServerState::close_grain() {
  const at::NoGradGuard no_grad;
  const schedule::FoldStep step = fold_->step();
  collect(gradients_[step.buffer]);
  for (int i = 0; i < step.num_combines; ++i) {
    gradients_[step.buffer - i - 1].add_(gradients_[step.buffer - i]);
  }
  fold_->end();
  ++grains_done_;
}

void ServerState::close_last_grain() {
  if (fold_->is_open()) close_grain();
  if (grains_done_ != grains().size()) {
    throw Error(base::invalid_argument(
        "step(): this rank computed " + std::to_string(grains_done_) + " of its grains [" +
        std::to_string(grains().begin) + ", " + std::to_string(grains().end) +
        "); call grain(index) and backward() for each"));
  }
  grains_done_ = 0;
}

std::vector<layout::Range> ServerState::pieces_of(layout::Range range) const {
  const auto element_bytes = static_cast<int64_t>(parameters_[0].tensor.element_size());
  const int64_t size = std::max<int64_t>(1, options_.message_bytes / element_bytes);
  std::vector<layout::Range> pieces;
  for (int64_t begin = range.begin; begin < range.end; begin += size) {
    pieces.push_back({begin, std::min(begin + size, range.end)});
  }
  return pieces;
}

void ServerState::send_to(const at::Tensor& tensor, int rank, const char* label, Works& works) {
  works.push_back(comm::send(tensor, rank, group_, {.label = label}));
  moved_.sent += static_cast<int64_t>(tensor.nbytes());
}

void ServerState::receive_from(at::Tensor tensor, int rank, const char* label, Works& works) {
  works.push_back(comm::recv(tensor, rank, group_, {.label = label}));
  moved_.received += static_cast<int64_t>(tensor.nbytes());
}

void ServerState::send_weights(int rank, Works& works) {
  for (const layout::Range piece : pieces_of({0, weights_.numel()})) {
    send_to(weights_.slice(0, piece.begin, piece.end), rank, "weights", works);
  }
}

void ServerState::receive_weights(int server, Works& works) {
  for (const layout::Range piece : pieces_of(shares_.range_of(server))) {
    receive_from(flat_.slice(0, piece.begin, piece.end), server, "weights", works);
  }
}

void ServerState::synchronize() {
  const at::NoGradGuard no_grad;
  at::Tensor all = is_worker() ? flat_ : at::zeros({layout_.count}, weights_.options());
  if (!is_worker()) all.slice(0, own_range().begin, own_range().end).copy_(weights_);
  for (const int server : shares_.servers) {
    const layout::Range range = shares_.range_of(server);
    if (range.empty()) continue;
    at::Tensor part = all.slice(0, range.begin, range.end);
    comm::broadcast(part, server, group_, {.label = "weights"}).wait();
  }
  if (is_worker()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    at::Tensor(parameter.detach())
        .copy_(all.slice(0, layout_.offsets[i], layout_.offsets[i] + layout_.sizes[i])
                   .view(parameter.sizes()));
  }
}

}  // namespace hanji::parallel
