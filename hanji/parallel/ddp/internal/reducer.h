#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layout/bucket.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/ddp/internal/agreement.h"

namespace hanji::parallel {

/// Gradients into buckets, buckets over the ranks, while backward still runs.
///
/// One backward: every parameter's hook puts its gradient into its slot of a bucket; a bucket whose
/// slots are all filled starts when all before it have started; the callback at the end of
/// backward fills what is missing with zeros, waits, and hands the reduced gradients out.
class Reducer {
 public:
  Reducer(std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers,
          const comm::Group& group, const DataParallelOptions& options);
  ~Reducer();

  void set_accumulating(bool accumulating) { accumulating_ = accumulating; }
  void set_weight(double weight);
  void finish();
  void broadcast_buffers() { broadcast_from_first(buffers_, group_); }
  void check_parameters() { check_same_values(parameters_, group_); }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const at::Tensor& flat_gradients() const { return flat_; }
  std::vector<at::Tensor> gradient_slots() const;
  const layout::BucketPlan& buckets() const { return plan_; }

 private:
  struct Slot {
    at::Tensor gradient;  ///< Shares the bucket's memory, shaped like the parameter.
    size_t bucket = 0;
    bool ready = false;
  };
  struct Bucket {
    at::Tensor flat;
    size_t num_ready = 0;
    std::optional<comm::Work> work;
  };

  void place_slots();
  void install_hooks();
  void on_gradient(size_t index);
  void arm_end_of_backward();
  void adopt(size_t index);
  void mark_ready(size_t index);
  void launch_ready_buckets();
  void fill_missing();
  at::Tensor used_anywhere();
  void hand_out(const at::Tensor& used);
  void reset();

  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> buffers_;
  comm::Group group_;
  DataParallelOptions options_;
  layout::BucketPlan plan_;
  at::Tensor flat_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  size_t num_launched_ = 0;
  int64_t num_backwards_ = 0;
  int armed_graph_task_ = -1;
  double weight_ = 1.0;
  bool accumulating_ = false;
};

}  // namespace hanji::parallel
