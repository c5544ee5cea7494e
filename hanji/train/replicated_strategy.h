#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/offload/offloaded_optimizer.h"
#include "hanji/train/strategy.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

struct ReplicatedOptions {
  parallel::DataParallelOptions reduction;
  parallel::MakeOptimizer make_optimizer;
  parallel::GroupRule rule;
  std::optional<parallel::OffloadOptions> offload = {};  ///< Of the moments; none: in memory.
  /// Whether the norm counts a parameter; empty: it does.
  std::function<bool(const at::Tensor&)> counts = {};
  /// Whether an update rounds what the next forward would, if model and optimizer serve it.
  bool rounds = false;
};

/// Replicates the whole state on every rank ("ddp"): parallel::data_parallel(), and an optimizer on
/// flat buffers. Parameters, gradients and moments have one layout; the moments may be in a file.
class ReplicatedStrategy : public Strategy {
 public:
  /// Errors  throws what data_parallel() and offloaded() throw.
  ReplicatedStrategy(layers::Model& model, const comm::Group& group,
                     const ReplicatedOptions& options);

  parallel::Replicas& replicas() { return replicas_; }

  const std::vector<parallel::NamedParameter>& parameters() const override {
    return replicas_.parameters();
  }
  void begin_step() override;
  void begin_grain(int64_t index, size_t stage) override;
  void add_gradient(size_t parameter, const at::Tensor& more) override;
  void accumulate(const std::function<void()>& backward) override;
  void sum_tied(const parallel::TiedParameters& tied) override {
    tied.sum(parameters(), gradients());
  }
  double gradient_norm() override;
  void update(double learning_rate, double gradient_divisor) override;
  int64_t rounded_bytes() const override { return rounded_bytes_; }
  void drop_rounded() override { forget_rounded(); }
  /// Drops what is rounded: who writes to the state need not be seen.
  FlatState state() const override;
  void set_num_updates(int64_t updates) override { optimizer_->set_num_updates(updates); }
  OwnState own_state() const override;
  const comm::Group* holders() const override { return &group_; }
  std::vector<at::Tensor> gradients() override;
  void check_parameters() override { replicas_.check_parameters(); }
  comm::Stats stats() const override { return group_.stats(); }
  std::vector<plan::MemoryLine> private_memory() const override;
  int64_t window_bytes() const override;

 private:
  void set_slots();
  void offer_rounded(std::vector<at::Tensor> rounded);
  void forget_rounded() const;

  comm::Group group_;
  parallel::Replicas replicas_;
  bool in_stages_;  ///< Whose grains are summed one by one.
  mutable ModelSlots slots_;
  std::vector<bool> rounded_;  ///< By parameter; empty: none.
  mutable int64_t rounded_bytes_ = 0;
  std::unique_ptr<parallel::FlatOptimizer> optimizer_;
  layout::FlatLayout counted_;  ///< Of the flat gradients, those whose norm this rank adds.
};

}  // namespace hanji::train
