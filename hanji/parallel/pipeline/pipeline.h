#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layers/batch.h"
#include "hanji/layers/flow.h"
#include "hanji/parallel/pipeline/split_backward.h"
#include "hanji/parallel/pipeline/stages.h"
#include "hanji/schedule/action.h"

namespace hanji::parallel {

/// What a caller does in a walk; messages are the pipeline's.
struct PipelineCalls {
  /// Calls Pipeline::forward().
  std::function<void(const schedule::Action&)> forward;
  /// Calls Pipeline::backward(): for each backward, backward_input and, of stages that split,
  /// backward_weight. `is_last`: no later one of the stage adds gradients.
  std::function<void(const schedule::Action&, bool is_last)> backward = {};
  std::function<void(const schedule::Action&)> reduce = {};
  std::function<void(const schedule::Action&)> unshard = {};
  std::function<void(const schedule::Action&)> reshard = {};
};

/// One rank's stages of a model, and the micro-batches under way in them.
///
/// What a stage returns goes to the rank of the next stage, and the gradient of what it received goes
/// back. Sends are asynchronous: the tensors lie in the heap until they are received, for which the
/// receiver does not need the sender; between hosts the engine that joins them sends them meanwhile. A backward starts from the received gradients of the stage's
/// outputs, whose memory is free by then unless the model keeps it.
///
/// The first flow of each size is preceded by its description (a message of 352 bytes), so micro-batches
/// may have different sizes. Between stages of one rank nothing is copied.
///
/// A stage that splits keeps what its weights' gradients are computed of until backward_weight.
/// Thread  the one that runs the model.
class Pipeline {
 public:
  /// `group`: the ranks of the stages. The model outlives the pipeline.
  /// Errors  throws as check_stages(); kUnsupported for stages that split on a GPU.
  Pipeline(layers::Model& model, Stages stages, const comm::Group& group);

  /// Walks this rank's list of a checked schedule of these stages, in order. `sizes`: the samples of each
  /// micro-batch.
  ///
  /// Order   every rank of the group, with the lists of one schedule and the same sizes. Complete when it
  ///         returns: all messages have been received.
  /// Errors  throws kInvalidArgument for a message between other stages than neighbours on two ranks, and
  ///         for a flow whose shape differs from an earlier one of the same
  ///         number of samples; throws as the calls and Work::wait(), whose messages name flow
  ///         and stages; the tag is of pipeline, flow and micro-batch.
  void run(const schedule::ActionList& actions, const std::vector<int64_t>& sizes,
           const PipelineCalls& calls);

  /// Runs the layers of the action's stage. Within run().
  /// Result  of the last stage its flow; else empty: the flow is on its way.
  layers::Flow forward(const schedule::Action& action, const layers::Batch& batch,
                       const std::vector<layers::LayerScope>& scopes = {});
  /// Runs the backward of the action's stage, or its part: of the last stage from `loss`. Within run().
  void backward(const schedule::Action& action, const at::Tensor& loss = {});

  const Stages& stages() const { return stages_; }
  /// Of flows and gradients, since it was made: to ranks of this host, and of others.
  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t network_bytes() const { return network_bytes_; }
  bool has(int stage) const { return stages_.ranks[stage] == group_.rank(); }
  const comm::Group& group() const { return group_; }

 private:
  /// Of a micro-batch in a stage of this rank.
  struct UnderWay {
    layers::Flow inputs;                       ///< Until the backward.
    layers::Flow outputs;                      ///< Until they are sent or taken.
    std::vector<torch::autograd::Edge> roots;  ///< Of the outputs that have a gradient.
    std::vector<torch::autograd::Edge>
        first;  ///< The same of layer 0, whose flow is then the inputs.
    std::vector<at::Tensor> output_gradients, input_gradients;
  };
  struct TensorShape {
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
    bool has_gradient = false;
    bool operator==(const TensorShape&) const = default;
  };
  using FlowShape = std::vector<TensorShape>;
  struct Sent {
    std::vector<at::Tensor> tensors;
    std::vector<comm::Work> works;
  };

  void run_backward(const schedule::Action& action, UnderWay& pass);
  void check_message(const schedule::Action& action) const;
  UnderWay& under_way(int stage, int64_t micro_batch) { return under_way_[{stage, micro_batch}]; }
  void send(const schedule::Action& action, int64_t size);
  void receive(const schedule::Action& action, int64_t size);
  void send_flow(const schedule::Action& action, int64_t size);
  uint64_t tag_of(const schedule::Action& action, bool is_flow) const;
  void give(const std::vector<at::Tensor>& tensors, const schedule::Action& action);
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType dtype, const schedule::Action& action);
  FlowShape& known_shape(int stage, int64_t size);
  const FlowShape& received_shape(const schedule::Action& action, int64_t size);
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;
  void drop_sent();

  layers::Model& model_;
  Stages stages_;
  comm::Group group_;
  std::map<schedule::Pass, UnderWay> under_way_;
  std::map<schedule::Pass, WeightBackward> weight_backwards_;
  std::set<schedule::Pass> split_;  ///< Whose backward is split.
  /// Of the flow out of a stage, by samples, with and without gradients.
  std::map<std::tuple<int, int64_t, bool>, FlowShape> shapes_;
  std::vector<std::string> labels_, gradient_labels_;  ///< Of the flow out of each stage.
  std::list<Sent> sent_;
  int64_t sent_bytes_ = 0, network_bytes_ = 0;
  uint64_t tags_ = 0;  ///< Tags of messages, no other pipeline's on the group.
};

}  // namespace hanji::parallel
