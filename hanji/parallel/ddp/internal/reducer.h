#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/prepare.h"
#include "hanji/comm/work.h"
#include "hanji/layout/bucket.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/gradients/gradients.h"
#include "hanji/parallel/parameter_watch.h"

namespace hanji::parallel {

/// Buckets over the ranks by all_reduce, or by the hook of the options; what every rank then has is
/// handed to the parameters. Stable: by a tree_all_reduce of all rows into row 0.
class Reducer : public GradientSink {
 public:
  /// `watch`: of the module whose tensors these are; null without one.
  Reducer(ModuleTensors tensors, const comm::Group& group, const DataParallelOptions& options,
          std::shared_ptr<ParameterWatch> watch);

  const at::Tensor& rows(size_t bucket) override { return buckets_[bucket].rows; }
  void begin(size_t bucket, Gradients& gradients) override;
  void end(size_t bucket, Gradients& gradients) override;

  Gradients& gradients() { return *gradients_; }
  bool join(double weight);
  void broadcast_buffers();
  void check_parameters();
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const at::Tensor& flat_gradients() const { return flat_; }
  std::vector<at::Tensor> gradient_slots() const;
  const layout::BucketPlan& plan() const { return plan_; }

 private:
  struct Bucket {
    at::Tensor rows;      ///< Its part of all rows.
    GradientBucket view;  ///< Its part of row 0, where sums land, as a hook sees it.
    std::shared_ptr<const schedule::StepList> steps;  ///< Stable only.
    comm::Call all_reduce;                            ///< Neither stable nor by a hook.
    comm::Work work;
  };

  void make_engine();
  void place_buckets();

  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> frozen_;
  std::shared_ptr<ParameterWatch> watch_;  ///< Null: of leaves, not of a module.
  comm::Group group_;
  DataParallelOptions options_;
  layout::BucketPlan plan_;
  bool converts_;    ///< Gradients have another dtype than their parameters.
  at::Tensor flat_;  ///< Row 0 of all buckets.
  std::vector<Bucket> buckets_;
  int64_t num_steps_ = 0;
  uint64_t tags_;  ///< Tags of calls that are not prepared: of bucket 0, and of join().
  std::unique_ptr<Gradients> gradients_;
};

}  // namespace hanji::parallel
