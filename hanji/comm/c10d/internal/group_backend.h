#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "hanji/comm/c10d/backend.h"
#include "hanji/comm/c10d/internal/any_source.h"
#include "hanji/comm/c10d/internal/group_work.h"
#include "hanji/comm/c10d/internal/staging.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm::c10d {

/// A Group behind c10d's interface. What reduces is in reductions.cpp, what moves in moves.cpp,
/// messages in messages.cpp, what goes over the store in meetings.cpp, the rest in backend.cpp.
class GroupBackend final : public ::c10d::Backend {
 public:
  GroupBackend(const Group& group, BackendOptions options);
  ~GroupBackend() override;

  const std::string getBackendName() const override { return "hanji"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}  // ours counts from the group's birth
  uint64_t getSequenceNumberForGroup() override { return calls_; }
  ::c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsSplitting() const override { return hooks_.meet != nullptr; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<::c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;

  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) override;

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const ::c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const ::c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const ::c10d::AllToAllOptions& options) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  WorkPtr barrier(const ::c10d::BarrierOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool all_ranks) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

 private:
  /// Something to do on the group's thread when a call's bytes are there.
  using Then = std::function<void()>;

  const Group& group() const;  // refuses after shutdown()
  CallName named(::c10d::OpType type, const char* title, std::chrono::milliseconds timeout,
                 const Tensors& inputs) const;
  c10::intrusive_ptr<GroupWork> begin(const CallName& name, Tensors outputs);
  WorkPtr track(const CallName& name, Tensors outputs, hanji::comm::Work work,
                const Then& then = {}, int source = -1);
  WorkPtr note(WorkPtr work);
  c10::intrusive_ptr<Backend> meet(const c10::intrusive_ptr<::c10d::Store>& store, int rank,
                                   int size, const c10::intrusive_ptr<Options>& options) const;
  hanji::comm::Work start_all_reduce(const at::Tensor& tensor, const ::c10d::ReduceOp& op,
                                     std::vector<Then>& thens);
  hanji::comm::Work start_reduce_scatter(at::Tensor& output, const at::Tensor& input,
                                         const ::c10d::ReduceOp& op, std::vector<Then>& thens);
  hanji::comm::Work start_all_gather(at::Tensor& output, const at::Tensor& input,
                                     std::vector<Then>& thens);
  hanji::comm::Work start_all_gather(const Tensors& outputs, const at::Tensor& input,
                                     std::vector<Then>& thens);
  void await_others(const std::string& prefix, std::chrono::milliseconds timeout, bool all_ranks);
  void await_rank_zero(const std::string& prefix, std::chrono::milliseconds timeout);

  std::optional<Group> group_;
  BackendOptions hooks_;
  c10::intrusive_ptr<Options> options_;
  std::unique_ptr<AnySource> any_source_;
  std::optional<std::vector<WorkPtr>> coalesced_;
  uint64_t calls_ = 0;
  uint64_t monitored_barriers_ = 0;
};

/// The one tensor of a call; refuses others by the call's name.
const at::Tensor& only(const Tensors& tensors, const char* title);

/// Runs them in order.
std::function<void()> in_turn(std::vector<std::function<void()>> thens);

}  // namespace hanji::comm::c10d
