#pragma once

#include <optional>

#include "hanji/parallel/server/parameter_server.h"
#include "hanji/train/strategy.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// Parameter servers on all ranks of one host ("server"): parallel::parameter_server(),
/// synchronous. The heap of the first rank has the optimizer's moments; each server updates those of
/// its range.
class ServedStrategy : public Strategy {
 public:
  /// Order   collective.
  /// Errors  throws what parameter_server() throws.
  ServedStrategy(layers::Model& model, const comm::Group& group,
                 parallel::ParameterServerOptions options);

  const std::vector<parallel::NamedParameter>& parameters() const override { return parameters_; }
  void begin_step() override;
  void begin_grain(int64_t index, size_t stage) override;
  void add_gradient(size_t parameter, const at::Tensor& more) override;
  void accumulate(const std::function<void()>& backward) override { backward(); }
  /// Servers are not combined with stages.
  void sum_tied(const parallel::TiedParameters& /*tied*/) override {}
  double gradient_norm() override;
  void update(double learning_rate, double gradient_divisor) override;
  FlatState state() const override;
  void set_num_updates(int64_t updates) override;
  OwnState own_state() const override;
  const comm::Group* holders() const override { return &group_; }
  std::vector<at::Tensor> gradients() override;
  comm::Stats stats() const override;

 private:
  void add_more(at::Tensor& sum);
  double pushed_norm();

  layers::Model& model_;
  comm::Group group_;
  std::vector<parallel::NamedParameter> parameters_;
  std::vector<std::string> names_;                   ///< Of the optimizer's moments.
  at::Tensor moments_;                               ///< [names, flat count], shared by all ranks.
  at::Tensor sum_;                                   ///< Of all gradients, in this server's range.
  std::vector<std::pair<size_t, at::Tensor>> more_;  ///< Of add_gradient(), by parameter.
  std::optional<double> norm_;                       ///< Of what this step has pushed.
  std::optional<parallel::ParameterServer> server_;
};

}  // namespace hanji::train
