#include "hanji/train/sharded_strategy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "hanji/comm/host_values.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/comm/stats.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/without_memory.h"
#include "hanji/train/optimizer.h"

namespace hanji::train {
namespace {

std::optional<mesh::Mesh> mesh_of(int groups, const comm::Group& group) {
  if (groups == 1) return std::nullopt;
  return mesh::Mesh(group, {{"dp", groups}, {"fsdp", group.size() / groups}});
}

parallel::Sharded shard(layers::Model& model, const ShardedOptions& options, const comm::Group& all,
                        const std::optional<mesh::Mesh>& mesh) {
  parallel::ShardingOptions sharding = options.sharding;
  if (mesh) sharding.replicas = (*mesh)["dp"];
  if (mesh && sharding.num_grains > 0) sharding.everyone = all;
  const comm::Group& group = mesh ? (*mesh)["fsdp"] : all;
  if (options.shards_parameters) {
    return parallel::fully_shard(model, group,
                                 {.sharding = sharding, .calls = parallel::UnitCalls::kLayers});
  }
  return parallel::shard_optimizer(model, group,
                                   {.sharding = sharding,
                                    .whole_gradients = options.whole_gradients,
                                    .unit_bytes = options.unit_bytes});
}

std::set<std::string> uncounted_parameters(const std::vector<parallel::NamedParameter>& parameters,
                                           const ShardedOptions& options) {
  std::set<std::string> found;
  for (const auto& [name, tensor] : parameters) {
    if (options.counts && !options.counts(tensor)) found.insert(name);
  }
  return found;
}

/// What a shard has of a value of its whole parameter.
at::Tensor piece_of(const at::Tensor& whole, const parallel::Shard& shard) {
  return whole.flatten()
      .slice(0, shard.elements.begin, shard.elements.end)
      .view(shard.tensor.sizes());
}

}  // namespace

ShardedStrategy::ShardedStrategy(layers::Model& model, const comm::Group& group,
                                 const ShardedOptions& options)
    : model_(model),
      group_(group),
      in_stages_(!options.sharding.parts.empty()),
      shards_parameters_(options.shards_parameters),
      mesh_(mesh_of(options.groups, group)),
      parameters_(parallel::learning_parameters(model)),
      uncounted_(uncounted_parameters(parameters_, options)),
      slots_(model, parameters_),
      sharded_(shard(model, options, group_, mesh_)),
      shares_memory_(options.sharding.share_memory || options.sharding.shards_together),
      shards_(sharded_.parameters()) {
  lay_out();
  make_optimizer(options);
}

void ShardedStrategy::lay_out() {
  const auto by_unit = parameters_where_they_lie();
  const layout::FlatLayout flat = parallel::flat_layout_of(by_unit);
  layout_.count = flat.count;
  for (const auto& [name, tensor] : parameters_) {
    const auto found = std::ranges::find(by_unit, name, &parallel::NamedParameter::name);
    layout_.offsets.push_back(flat.offsets[found - by_unit.begin()]);
    layout_.sizes.push_back(tensor.numel());
    whole_.push_back(*found);
  }
}

/// Of those that ranks gather from several hosts the shapes.
std::vector<parallel::NamedParameter> ShardedStrategy::parameters_where_they_lie() const {
  if (shares_memory_ || !shards_parameters_) return parallel::whole_parameters(sharded_);
  std::vector<parallel::NamedParameter> shapes = parallel::parameters_by_unit(sharded_);
  for (auto& [name, tensor] : shapes) {
    tensor = parallel::without_memory(tensor.sizes(), tensor.options(),
                                      name + " lies in shards on several hosts");
  }
  return shapes;
}

std::vector<layers::LayerScope> ShardedStrategy::scopes() const {
  return {parallel::unit_scope(model_)};
}

void ShardedStrategy::make_optimizer(const ShardedOptions& options) {
  names_ = moment_names(options.make_optimizer);
  auto parts = sharded_.flat_parts(options.rule);
  make_moments(parts);
  std::unordered_map<std::string, int64_t> offsets;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    offsets[parameters_[i].name] = layout_.offsets[i];
  }
  int64_t next_shard = 0;
  for (parallel::FlatPart& part : parts) {
    const int64_t shard = std::exchange(next_shard, next_shard + part.parameters.numel());
    if (part.pieces.empty()) continue;
    // Neighbours in a unit are neighbours in the layout, with the same room between them.
    const parallel::FlatPiece& piece = part.pieces[0];
    const int64_t begin = offsets.at(piece.name) + piece.first - piece.range.begin;
    const int64_t of_moments = shares_memory_ ? begin : shard;
    for (const parallel::FlatPiece& one : part.pieces) {
      own_.push_back({begin + one.range.begin, begin + one.range.end});
      if (!shares_memory_) held_.push_back(held_range(part, one, of_moments));
    }
    part.zeros_like = [this, of_moments, next = 0](const at::Tensor& like) mutable {
      return moments_[next++].narrow(0, of_moments, like.numel());
    };
  }
  optimizer_ = parallel::optimizer_of_parts(options.make_optimizer, std::move(parts));
}

/// Of all ranks that share memory together, or of this rank's shards, one after another.
void ShardedStrategy::make_moments(const std::vector<parallel::FlatPart>& parts) {
  const comm::Group& group = own_group();
  const auto rows = std::ssize(names_);
  const at::ScalarType dtype = parameters_[0].tensor.scalar_type();
  if (shares_memory_) {
    moments_ = comm::shared_zeros({rows, layout_.count}, dtype, 0, group, "optimizer");
    return;
  }
  int64_t elements = 0;
  for (const parallel::FlatPart& part : parts) elements += part.parameters.numel();
  moments_ = comm::zeros_on(comm::device_of(group), {rows, elements}, dtype, group, "optimizer");
}

/// Of the piece that was noted last; its moments begin at `of_moments` in those of its part.
HeldRange ShardedStrategy::held_range(const parallel::FlatPart& part,
                                      const parallel::FlatPiece& piece, int64_t of_moments) const {
  HeldRange held{.range = own_.back(), .parameters = {}, .moments = {}};
  const int64_t count = piece.range.size();
  if (shards_parameters_) held.parameters = part.parameters.narrow(0, piece.range.begin, count);
  for (int64_t row = 0; row < std::ssize(names_); ++row) {
    held.moments.push_back(moments_[row].narrow(0, of_moments + piece.range.begin, count));
  }
  return held;
}

void ShardedStrategy::unshard(layout::Range layers) {
  if (shards_parameters_) sharded_.unshard(layers);
}

void ShardedStrategy::reshard(layout::Range layers) {
  if (shards_parameters_) sharded_.reshard(layers);
}

void ShardedStrategy::begin_step() {
  for (const at::Tensor& shard : shards_) shard.mutable_grad().reset();
  set_slots();
}

void ShardedStrategy::begin_grain(int64_t index, size_t stage) {
  sharded_.grain(index, stage);
  set_slots();
}

/// A stage's forward comes before it is known where its grain's backward may write.
void ShardedStrategy::set_slots() {
  const bool stable = sharded_.grains().size() > 0;
  if (!in_stages_ || !stable) slots_.set(sharded_.gradient_slots());
}

void ShardedStrategy::add_gradient(size_t parameter, const at::Tensor& more) {
  const at::NoGradGuard no_grad;
  sharded_.whole_sums()[parameter].add_(more);
  for (const parallel::Shard& shard : sharded_.shards()) {
    if (shard.name != parameters_[parameter].name || !shard.tensor.grad().defined()) continue;
    at::Tensor own = shard.tensor.grad();
    own.add_(piece_of(more, shard));
  }
}

/// Copies are units of their own, so that ranks of one data coordinate have equal shards of them.
void ShardedStrategy::sum_tied(const parallel::TiedParameters& tied) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> whole = sharded_.whole_sums();
  if (!whole.empty()) tied.sum(parameters_, whole);
  std::vector<at::Tensor> own(parameters_.size());
  const auto copies = tied.parameters();
  for (const parallel::Shard& shard : sharded_.shards()) {
    if (std::ranges::find(copies, shard.name, &parallel::NamedParameter::name) == copies.end()) {
      continue;
    }
    const size_t place =
        std::ranges::find(parameters_, shard.name, &parallel::NamedParameter::name) -
        parameters_.begin();
    at::Tensor& gradient = shard.tensor.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(shard.tensor.detach());
    if (!whole.empty()) gradient.copy_(piece_of(whole[place], shard));
    own[place] = gradient;
  }
  if (whole.empty()) tied.sum(parameters_, own);
}

/// In stages the forwards of other micro-batches have taken the slots.
void ShardedStrategy::accumulate(const std::function<void()>& backward) {
  const auto only_accumulate = sharded_.accumulate();
  backward();
  if (!in_stages_) set_slots();
}

double ShardedStrategy::gradient_norm() {
  constexpr double kNoClipping = 0;
  const layout::Cut cut = model_.cut();
  if (cut.degree == 1 && !in_stages_) return sharded_.clip_grad_norm(kNoClipping);
  std::vector<at::Tensor> counted;
  for (const parallel::Shard& shard : sharded_.shards()) {
    if (!is_counted(cut, shard.name) || uncounted_.contains(shard.name)) continue;
    counted.push_back(shard.tensor.grad());
  }
  return norm_of_pieces(counted, own_group());
}

void ShardedStrategy::update(double learning_rate, double gradient_divisor) {
  sharded_.step([&] { optimizer_->step(learning_rate, gradient_divisor); });
}

FlatState ShardedStrategy::state() const {
  FlatState state{.layout = layout_,
                  .parameters = whole_,
                  .gradients = {},
                  .moments = {},
                  .num_updates = optimizer_->num_updates()};
  if (shares_memory_) {
    state.moments = moments_of(names_, moments_);
    return state;
  }
  for (const std::string& name : names_) state.moments.push_back({name, {}});
  state.held = held_;
  return state;
}

OwnState ShardedStrategy::own_state() const {
  const bool saves = !mesh_ || (*mesh_)["dp"].rank() == 0;
  const comm::Group& group = own_group();
  OwnState own{own_, own_, saves ? std::optional(group.rank()) : std::nullopt, group.size()};
  if (!shares_memory_ && !shards_parameters_) own.parameters = {{0, layout_.count}};
  return own;
}

const comm::Group* ShardedStrategy::holders() const {
  const bool first = own_group().rank() == 0;
  return mesh_ && first && shares_memory_ ? &(*mesh_)["dp"] : nullptr;
}

const comm::Group* ShardedStrategy::sharers() const {
  return shares_memory_ ? nullptr : &own_group();
}

std::vector<at::Tensor> ShardedStrategy::gradients() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums = sharded_.whole_sums();
  if (!sums.empty()) return sums;
  std::vector<at::Tensor> own;
  for (const at::Tensor& shard : shards_) own.push_back(shard.grad());
  std::unordered_map<std::string, at::Tensor> whole;
  for (auto& [name, tensor] : parallel::gather_values(sharded_, own)) whole[name] = tensor;
  for (const parallel::NamedParameter& one : parameters_) sums.push_back(whole.at(one.name));
  return sums;
}

comm::Stats ShardedStrategy::stats() const {
  comm::Stats sum = group_.stats();
  if (!mesh_) return sum;
  for (const char* axis : {"dp", "fsdp"}) comm::add(sum, (*mesh_)[axis].stats());
  return sum;
}

}  // namespace hanji::train
