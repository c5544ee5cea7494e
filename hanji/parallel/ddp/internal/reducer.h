#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layout/bucket.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/gradient_hook.h"
#include "hanji/parallel/grain_fold.h"

namespace hanji::parallel {

/// Gradients into buckets, buckets over the ranks, while backward still runs.
///
/// One backward: every parameter's hook puts its gradient into its slot of a bucket; a bucket whose
/// slots are all filled starts when all before it have started; the callback at the end of
/// backward fills what is missing with zeros, waits, and hands the reduced gradients out.
///
/// Stable: a backward is one grain. The slots lie in one of several buffers, the rows of `sums_`;
/// a hook adds them up as the grain tree says while they are in cache, and buckets start in the
/// backward of the rank's last grain, as parts of a tree_all_reduce into row 0.
class Reducer {
 public:
  Reducer(std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers,
          const comm::Group& group, const DataParallelOptions& options);
  ~Reducer();

  void set_accumulating(bool accumulating);
  void begin_grain(int64_t index);
  layout::Range grains() const { return fold_ ? fold_->grains() : layout::Range{}; }
  /// Throws kInvalidArgument unless the sums are stable.
  const GrainFold& fold() const;
  void set_weight(double weight);
  bool join(double weight);
  void finish();
  void broadcast_buffers() { broadcast_from_first(buffers_, group_); }
  void check_parameters() { check_same_values(parameters_, group_); }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const at::Tensor& flat_gradients() const { return flat_; }
  const std::vector<at::Tensor>& gradient_slots() const { return rows_[row_]; }
  const layout::BucketPlan& buckets() const { return plan_; }

 private:
  struct Slot {
    size_t bucket = 0;
    bool ready = false;
    bool used = false;        ///< Some backward since the last reduction gave a gradient.
    bool used_first = false;  ///< Static order: so it was before the first reduction.
  };
  struct Bucket {
    at::Tensor flat;   ///< Its part of row 0, where the reduced gradients land.
    at::Tensor parts;  ///< Its part of all rows.
    std::shared_ptr<const schedule::StepList> steps;  ///< Stable only.
    GradientBucket view;                              ///< What a hook sees.
    size_t num_ready = 0;
    std::optional<comm::Work> work;
  };

  void place_slots();
  std::vector<at::Tensor> slots_of(const at::Tensor& row) const;
  void install_hooks();
  void on_gradient(size_t index);
  void arm_end_of_backward();
  void adopt(size_t index);
  void widen(size_t index);
  void fold_in(size_t index);
  void mark_ready(size_t index);
  void launch_ready_buckets();
  comm::Work launch(size_t index);
  void fill_missing();
  void scale();
  void reduce_all();
  at::Tensor used_anywhere();
  void check_static_order();
  void hand_out(const at::Tensor& used);
  void reset();

  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> buffers_;
  comm::Group group_;
  DataParallelOptions options_;
  layout::BucketPlan plan_;
  std::optional<GrainFold> fold_;
  at::Tensor sums_;  ///< [number of gradient buffers, flat count].
  at::Tensor flat_;  ///< Row 0.
  /// By row and parameter: shares the row's memory, shaped like the parameter.
  std::vector<std::vector<at::Tensor>> rows_;
  size_t row_ = 0;  ///< Where gradients go now.
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  size_t num_launched_ = 0;
  int64_t num_backwards_ = 0;
  int armed_graph_task_ = -1;
  double weight_ = 1.0;
  double joined_weight_ = 0;   ///< Of all ranks in this step; 0: join() was not called.
  bool without_data_ = false;  ///< This rank takes part in a step of the others.
  at::Tensor static_used_;     ///< Static order: what used_anywhere() gave once.
  bool accumulating_ = false;
  bool converts_ = false;  ///< Gradients have another dtype than their parameters.
};

}  // namespace hanji::parallel
