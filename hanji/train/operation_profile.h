#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "hanji/comm/heap.h"
#include "hanji/layers/flow.h"
#include "hanji/layout/range.h"
#include "hanji/lens/observer.h"
#include "hanji/plan/plan.h"
#include "hanji/report/operations.h"
#include "hanji/trace/own_kernel.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/loop.h"

namespace hanji::train {

/// Times every operation of the steps of train.profile on this rank: those of libtorch and hanji's own kernels.
///
/// Each becomes an event of the rank's trace, and a part of OUT/operations/rank.N.jsonl. An operation belongs to the
/// layer whose forward runs, or in backward to the one that recorded the node of autograd; to a phase by the trace's
/// span. Computes nothing, so bits stay.
/// Cost    1 to 2 us an operation of a profiled step; other steps: a comparison a step and layer.
/// Thread  the rank's own, which runs forward, backward and the update on CPUs.
class OperationProfile : public lens::Observer, public trace::KernelObserver {
 public:
  /// Adds the innermost scope around each layer of the job, whose ranks record. All arguments outlive the profile,
  /// and the job runs no step after it.
  OperationProfile(Job& job, const plan::Plan& plan, const PrivateMemory& memory);
  OperationProfile(const OperationProfile&) = delete;
  OperationProfile& operator=(const OperationProfile&) = delete;

  /// Observes one step from its birth to its death; one that is not profiled costs a comparison.
  class Step {
   public:
    /// `number`: of the steps done before it.
    Step(OperationProfile* profile, int64_t number);
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step();

   private:
    struct Scopes;
    OperationProfile* profile_ = nullptr;
    std::unique_ptr<Scopes> scopes_;
  };
  /// After each step.
  void end(int64_t number, const StepSeconds& seconds);

  /// Writes the record, if a profiled step was made. `first_step`: of `seconds`, those of all steps of this run.
  Status write(const std::filesystem::path& out, const std::vector<StepSeconds>& seconds,
               int64_t first_step);

  void before(const lens::Operation& operation) override;
  void after(const lens::Operation& operation) override;
  void failed(const std::exception& error) override;
  void begin(const trace::KernelWork& work) override;
  void end() override;

 private:
  struct Open {
    int64_t start_ns = 0;
    int64_t within_ns = 0;  ///< Time of operations within it.
    std::string name;
    std::string phase;
    int64_t layer = -1;
    double flops = 0;
    int64_t bytes = 0;
    bool is_seen = true;  ///< In the trace: views would fill it.
  };
  /// The nodes of autograd that a layer's forward has made.
  struct Nodes {
    uint64_t begin = 0, end = 0;
    int64_t layer = 0;
  };

  layers::Flow run_layer(int64_t layer, layers::Flow flow, const layers::RunLayer& run);
  void open(Open operation);
  void close(int64_t written_bytes, int64_t end_ns);
  std::string phase_now() const;
  int64_t layer_now();

  const layout::Range steps_;
  const plan::Plan& plan_;
  const int rank_;
  trace::Recorder& recorder_;
  const PrivateMemory& memory_;
  const comm::Heap& heap_;
  bool is_on_ = false;
  int64_t layer_ = -1;           ///< Layer whose forward runs.
  int64_t backward_layer_ = -1;  ///< Layer of the last node that a layer has made.
  std::vector<Nodes> nodes_;
  std::vector<Open> open_;
  std::map<std::tuple<std::string, int64_t, std::string>, size_t> rows_;
  report::OperationsRecord record_;
  int64_t steps_done_ = 0;
  double in_operations_ = 0;
};

}  // namespace hanji::train
