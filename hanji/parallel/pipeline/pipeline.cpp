#include "hanji/parallel/pipeline/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/message.h"
#include "hanji/comm/new_tags.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/layers/model.h"
#include "hanji/trace/recorder.h"

namespace hanji::parallel {
namespace {

using schedule::Action;
using schedule::ActionKind;

constexpr size_t kMaxDims = 8;
/// Dtype, whether it has a gradient, dimensions, sizes.
constexpr size_t kWordsPerTensor = 3 + kMaxDims;
/// How many tensors, then each.
using Description = std::array<int64_t, 1 + layers::kMaxFlowTensors * kWordsPerTensor>;

std::vector<torch::autograd::Edge> edges_of(const layers::Flow& flow) {
  std::vector<torch::autograd::Edge> edges;
  for (const at::Tensor& one : flow) {
    if (one.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(one));
  }
  return edges;
}

at::Tensor as_leaf(const at::Tensor& tensor, bool has_gradient) {
  at::Tensor leaf = tensor.detach();
  return has_gradient ? leaf.requires_grad_() : leaf;
}

/// A tensor whose gradient backward() has not computed has a gradient of zeros.
std::vector<at::Tensor> gradients_of(const layers::Flow& inputs) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    gradients.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input.detach()));
  }
  return gradients;
}

}  // namespace

Pipeline::Pipeline(layers::Model& model, Stages stages, const comm::Group& group)
    : model_(model), stages_(std::move(stages)), group_(group) {
  check_stages(stages_, model_, group_.size());
  if (std::ranges::count(stages_.splits, true) > 0 && !comm::device_of(group_).is_cpu()) {
    throw Error(base::unsupported(
        "a split backward on a GPU: libtorch runs it on threads of its own; leave Stages::splits "
        "empty"));
  }
  for (int stage = 0; stage < stages_.last(); ++stage) {
    labels_.push_back(fmt::format("flow of stage {} to {}", stage, stage + 1));
    gradient_labels_.push_back(fmt::format("gradient of stage {} to {}", stage + 1, stage));
  }
  tags_ = comm::new_tags(group_);
}

/// Of a message between two stages, the same at both ends: no two messages of a pair of ranks that may
/// be under way together have one.
uint64_t Pipeline::tag_of(const Action& action, bool is_flow) const {
  constexpr int kMicroBatchBits = 20;
  const auto stage = static_cast<uint64_t>(std::min(action.stage, action.peer));
  const uint64_t kind = 2 * stage + (is_flow ? 0 : 1);
  return tags_ + (kind << kMicroBatchBits) + static_cast<uint64_t>(action.micro_batch);
}

void Pipeline::run(const schedule::ActionList& actions, const std::vector<int64_t>& sizes,
                   const PipelineCalls& calls) {
  under_way_.clear();
  weight_backwards_.clear();
  split_.clear();
  std::map<int, const Action*> last;  // of each stage's backwards
  for (const Action& action : actions) {
    const bool adds = stages_.adds_gradients(action);
    if (adds) last[action.stage] = &action;
    if (adds && action.kind == ActionKind::kBackwardWeight) split_.insert(pass_of(action));
  }
  for (auto action = actions.begin(); action != actions.end(); ++action) {
    switch (action->kind) {
      case ActionKind::kForward: calls.forward(*action); break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        calls.backward(*action, &*action == last[action->stage]);
        break;
      case ActionKind::kBackwardWeight:
        if (stages_.adds_gradients(*action))
          calls.backward(*action, &*action == last[action->stage]);
        break;
      case ActionKind::kSend: send(*action, sizes.at(action->micro_batch)); break;
      case ActionKind::kReceive: receive(*action, sizes.at(action->micro_batch)); break;
      case ActionKind::kReduce:
        if (calls.reduce) calls.reduce(*action);
        break;
      case ActionKind::kUnshard:
        if (calls.unshard) calls.unshard(*action);
        break;
      case ActionKind::kReshard:
        if (calls.reshard) calls.reshard(*action);
        break;
    }
    drop_sent();
  }
  for (Sent& one : sent_) {
    for (comm::Work& work : one.works) work.wait();
  }
  sent_.clear();
}

layers::Flow Pipeline::forward(const Action& action, const layers::Batch& batch,
                               const std::vector<layers::LayerScope>& scopes) {
  const int stage = action.stage;
  const bool trains = at::GradMode::is_enabled();
  UnderWay& pass = under_way(stage, action.micro_batch);
  if (stage > 0 && has(stage - 1)) {
    UnderWay& before = under_way(stage - 1, action.micro_batch);
    for (const at::Tensor& output : std::exchange(before.outputs, {})) {
      pass.inputs.push_back(as_leaf(output, trains && output.requires_grad()));
    }
  }
  layers::Flow flow = pass.inputs;
  if (!trains) pass.inputs.clear();
  layout::Range layers = stages_.layers[stage];
  if (layers.begin == 0 && split_.contains(pass_of(action))) {
    // No stage waits for the backward of layer 0.
    flow = model_.forward({0, ++layers.begin}, std::move(flow), batch, scopes);
    pass.first = edges_of(flow);
    for (at::Tensor& one : flow) one = as_leaf(one, one.requires_grad());
    pass.inputs = flow;
  }
  flow = model_.forward(layers, std::move(flow), batch, scopes);
  if (stage == stages_.last()) return flow;
  pass.roots = edges_of(flow);
  pass.outputs = std::move(flow);
  return {};
}

void Pipeline::backward(const Action& action, const at::Tensor& loss) {
  const int stage = action.stage;
  if (action.kind == ActionKind::kBackwardWeight) {
    if (auto weights = weight_backwards_.extract(pass_of(action))) weights.mapped().run();
    return;
  }
  UnderWay& pass = under_way(stage, action.micro_batch);
  if (stage == stages_.last()) {
    pass.roots = edges_of({loss});
    pass.output_gradients = {at::ones_like(loss)};
  } else if (has(stage + 1)) {
    pass.output_gradients = under_way(stage + 1, action.micro_batch).input_gradients;
    under_way_.erase({stage + 1, action.micro_batch});
  }
  run_backward(action, pass);
  if (stage == 0) under_way_.erase({stage, action.micro_batch});
}

void Pipeline::run_backward(const Action& action, UnderWay& pass) {
  const auto roots = std::exchange(pass.roots, {});
  const auto gradients = std::exchange(pass.output_gradients, {});
  const layers::Flow inputs = std::exchange(pass.inputs, {});
  if (!stages_.adds_gradients(action)) {
    InputBackward first(roots, gradients, inputs);
    pass.input_gradients = std::move(first.input_gradients);
    for (size_t i = 0; i < pass.first.size(); ++i) {
      first.weights.add(pass.first[i], pass.input_gradients[i]);
    }
    weight_backwards_[pass_of(action)] = std::move(first.weights);
    return;
  }
  if (!roots.empty()) {
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
  pass.input_gradients = gradients_of(inputs);
}

void Pipeline::check_message(const Action& action) const {
  const int distance = std::abs(action.peer - action.stage);
  const bool exists = std::max(action.peer, action.stage) <= stages_.last() &&
                      std::min(action.peer, action.stage) >= 0;
  if (distance == 1 && exists && has(action.stage) && !has(action.peer)) return;
  throw Error(base::invalid_argument(fmt::format(
      "{}: of {} stages, messages go between neighbours of which rank {} has one; pass its list of "
      "a schedule of these stages",
      to_string(action), stages_.last() + 1, group_.rank())));
}

void Pipeline::send(const Action& action, int64_t size) {
  check_message(action);
  if (action.peer > action.stage) return send_flow(action, size);
  give(under_way(action.stage, action.micro_batch).input_gradients, action);
  under_way_.erase({action.stage, action.micro_batch});
}

void Pipeline::send_flow(const Action& action, int64_t size) {
  UnderWay& pass = under_way(action.stage, action.micro_batch);
  const layers::Flow flow = std::exchange(pass.outputs, {});
  FlowShape shape;
  for (const at::Tensor& one : flow) {
    shape.push_back({one.sizes().vec(), one.scalar_type(), one.requires_grad()});
  }
  FlowShape& known = known_shape(action.stage, size);
  if (known.empty()) {
    Description words = {std::ssize(shape)};
    auto* word = words.data() + 1;
    for (const TensorShape& one : shape) {
      if (one.sizes.size() > kMaxDims) {
        throw Error(base::unsupported(
            fmt::format("{}: a tensor of {} dimensions; a flow between stages has at most {}",
                        to_string(action), one.sizes.size(), kMaxDims)));
      }
      word[0] = static_cast<int64_t>(one.dtype);
      word[1] = one.has_gradient ? 1 : 0;
      word[2] = std::ssize(one.sizes);
      std::ranges::copy(one.sizes, word + 3);
      word += kWordsPerTensor;
    }
    at::Tensor description = at::empty({std::ssize(words)}, at::kLong);
    std::ranges::copy(words, description.mutable_data_ptr<int64_t>());
    give({description}, action);
    known = shape;
  }
  if (known != shape) {
    throw Error(base::invalid_argument(fmt::format(
        "{}: the shape of this flow differs from that of an earlier micro-batch of {} samples; "
        "stages exchange one shape for each number of samples",
        to_string(action), size)));
  }
  give(flow, action);
  if (pass.roots.empty()) under_way_.erase({action.stage, action.micro_batch});
}

void Pipeline::receive(const Action& action, int64_t size) {
  check_message(action);
  const bool is_flow = action.peer < action.stage;
  UnderWay& pass = under_way(action.stage, action.micro_batch);
  for (const TensorShape& one :
       is_flow ? received_shape(action, size) : known_shape(action.stage, size)) {
    if (!is_flow && !one.has_gradient) continue;
    at::Tensor tensor = take(one.sizes, one.dtype, action);
    if (is_flow) {
      pass.inputs.push_back(as_leaf(tensor, one.has_gradient));
    } else {
      pass.output_gradients.push_back(std::move(tensor));
    }
  }
}

Pipeline::FlowShape& Pipeline::known_shape(int stage, int64_t size) {
  return shapes_[{stage, size, at::GradMode::is_enabled()}];
}

const Pipeline::FlowShape& Pipeline::received_shape(const Action& action, int64_t size) {
  FlowShape& known = known_shape(action.peer, size);
  if (!known.empty()) return known;
  const at::Tensor description =
      take({static_cast<int64_t>(Description().size())}, at::kLong, action);
  const auto* word = description.const_data_ptr<int64_t>();
  const int64_t count = *word++;
  for (int64_t i = 0; i < count; ++i, word += kWordsPerTensor) {
    known.push_back(
        {{word + 3, word + 3 + word[2]}, static_cast<at::ScalarType>(word[0]), word[1] != 0});
  }
  return known;
}

/// Tensors outside the heap are copied to it, where the receiver finds them.
void Pipeline::give(const std::vector<at::Tensor>& tensors, const Action& action) {
  const bool is_flow = action.peer > action.stage;
  const std::string& label = is_flow ? labels_[action.stage] : gradient_labels_[action.peer];
  const int to = stages_.ranks[action.peer];
  int64_t& counted = comm::shares_memory(group_, to) ? sent_bytes_ : network_bytes_;
  Sent& sent = sent_.emplace_back();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& one : tensors) {
    at::Tensor tensor = one.detach();
    if (!tensor.is_contiguous() || (tensor.is_cpu() && !group_.heap().contains(tensor))) {
      tensor = empty(one.sizes(), one.scalar_type());
      tensor.copy_(one);
    }
    sent.works.push_back(
        comm::send(tensor, to, group_, {.tag = tag_of(action, is_flow), .label = label}));
    counted += static_cast<int64_t>(tensor.nbytes());
    sent.tensors.push_back(std::move(tensor));
  }
}

at::Tensor Pipeline::take(at::IntArrayRef sizes, at::ScalarType dtype, const Action& action) {
  const bool is_flow = action.peer < action.stage;
  const std::string& label = is_flow ? labels_[action.peer] : gradient_labels_[action.stage];
  const int from = stages_.ranks[action.peer];
  at::Tensor tensor = empty(sizes, dtype);
  // In shared memory a message leaves its own events.
  trace::Recorder* const recorder = comm::shares_memory(group_, from) ? nullptr : group_.recorder();
  const trace::Span wait(recorder, fmt::format("waiting for stage {}", action.peer),
                         trace::Category::kSkew);
  comm::recv(tensor, from, group_, {.tag = tag_of(action, is_flow), .label = label}).wait();
  return tensor;
}

at::Tensor Pipeline::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  const c10::Device device = comm::device_of(group_);
  if (device.is_cpu()) return group_.heap().empty(sizes, dtype, "flows");
  return at::empty(sizes, at::TensorOptions(dtype).device(device));
}

void Pipeline::drop_sent() {
  std::erase_if(sent_, [](Sent& one) {
    return std::ranges::all_of(one.works, [](comm::Work& work) { return work.done(); });
  });
}

}  // namespace hanji::parallel
