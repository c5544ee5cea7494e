#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layout/server.h"
#include "hanji/parallel/gradients/gradients.h"
#include "hanji/parallel/optimizer_kind.h"
#include "hanji/parallel/parameter_watch.h"
#include "hanji/parallel/placed_tensors.h"
#include "hanji/parallel/server/parameter_server.h"

namespace hanji::parallel {

/// What both timings share: the flat buffers, and messages of a range. To a worker's gradients it is
/// a sink of one unit, which pushes.
///
/// A worker's gradients lie in the rows of `gradients_`, as many as its fold needs; its parameters
/// in `flat_`. A server's weights are its range of `flat_`, or memory of its own where it only serves.
class ServerState : public GradientSink {
 public:
  ServerState(std::vector<NamedParameter> parameters, const comm::Group& group,
              const ParameterServerOptions& options, layout::FlatLayout flat,
              layout::ServerShares shares);
  ~ServerState() override;

  virtual ServerStep step(double learning_rate) = 0;
  /// The halves of a synchronous step.
  virtual double push() = 0;
  virtual ServerStep update(double learning_rate, double gradient_divisor) = 0;
  virtual void finish() = 0;
  /// Watches the module; its parameters are those that this was made of.
  void set_watch(std::unique_ptr<ParameterWatch> watch) { watch_ = std::move(watch); }
  /// Throws on this rank if its module has changed.
  void refuse_changes() const;
  /// A worker's; throws kInvalidArgument, naming the call, on a rank that only serves.
  Gradients& gradients(const char* call) const;
  void synchronize();
  void gather_state(torch::optim::Optimizer& whole) const;
  void scatter_state(const torch::optim::Optimizer& whole);
  bool is_worker() const { return worker_ >= 0; }
  bool is_server() const { return shares_.server_index(group_.rank()) >= 0; }
  const layout::ServerShares& shares() const { return shares_; }
  const layout::FlatLayout& flat_layout() const { return layout_; }
  FlatOptimizer* optimizer() const { return optimizer_.get(); }
  layout::ServerTraffic::Link moved() const { return moved_; }

 protected:
  using Works = std::vector<comm::Work>;

  const at::Tensor& rows(size_t /*unit*/) override { return gradients_; }
  void begin(size_t /*unit*/, Gradients& /*gradients*/) override { push_rows(); }
  void end(size_t /*unit*/, Gradients& /*gradients*/) override {}
  /// Sends what of `gradients_` others serve.
  virtual void push_rows() = 0;
  /// [begin, end) in pieces of message_bytes.
  std::vector<layout::Range> pieces_of(layout::Range range) const;
  void send_to(const at::Tensor& tensor, int rank, const char* label, Works& works);
  void receive_from(at::Tensor tensor, int rank, const char* label, Works& works);
  void send_weights(int rank, Works& works);
  void receive_weights(int server, Works& works);
  layout::Range own_range() const { return shares_.range_of(group_.rank()); }
  /// What the module's author has put in the place of parameters' memory becomes the weights.
  /// Errors  throws kInvalidArgument, naming them, for values that the weights cannot take, and for any
  ///         change where roles are split: a pure server keeps no module up to date.
  void take_writes();
  trace::Recorder* recorder() const { return group_.recorder(); }

  std::vector<NamedParameter> parameters_;
  comm::Group group_;
  ParameterServerOptions options_;
  layout::FlatLayout layout_;
  layout::ServerShares shares_;
  int worker_ = -1;                    ///< Index among the workers, or -1.
  schedule::GrainTree tree_;           ///< Over workers; without num_grains each has one grain.
  at::Tensor flat_;                    ///< Workers: all parameters.
  at::Tensor gradients_;               ///< Workers: [buffers, count].
  std::unique_ptr<Gradients> engine_;  ///< Workers.
  at::Tensor weights_;                 ///< Servers: the own range.
  at::Tensor sum_;                     ///< Servers: gradients of the own range.
  std::unique_ptr<FlatOptimizer> optimizer_;
  PlacedTensors placed_;            ///< The parameters.
  std::vector<uint32_t> versions_;  ///< Theirs, where roles are split.
  layout::ServerTraffic::Link moved_;
  uint64_t tags_;  ///< Tags of messages and calls, no other handle's on the group.

 private:
  void place_worker();
  void make_engine();
  void place_server();
  void sum_over_servers(at::Tensor& values);
  at::Tensor held_weights() const;
  bool splits_roles() const { return shares_.servers != shares_.workers; }
  void note_versions();
  struct Kept {
    int64_t updates = 0;
    std::array<bool, kMaxStateTensors> tensors = {};
  };
  /// What servers keep of `kind`. A collective.
  Kept kept_anywhere(const OptimizerKind& kind) const;
  std::unique_ptr<ParameterWatch> watch_;
  /// Of all ranges, the state that a FlatOptimizer calls `name`, [count]. A collective.
  at::Tensor whole_of(const char* name) const;
  int64_t updates_of(const torch::optim::Optimizer& whole, const OptimizerKind& kind) const;
};

std::unique_ptr<ServerState> synchronous_server(std::vector<NamedParameter> parameters,
                                                const comm::Group& group,
                                                const ParameterServerOptions& options,
                                                const layout::FlatLayout& flat,
                                                const layout::ServerShares& shares);
std::unique_ptr<ServerState> asynchronous_server(std::vector<NamedParameter> parameters,
                                                 const comm::Group& group,
                                                 const ParameterServerOptions& options,
                                                 const layout::FlatLayout& flat,
                                                 const layout::ServerShares& shares);

}  // namespace hanji::parallel
