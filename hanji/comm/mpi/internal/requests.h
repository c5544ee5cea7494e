#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "hanji/comm/internal/wire.h"
#include "hanji/comm/mpi/internal/communicator.h"

namespace hanji::comm::mpi {

/// What is under way on a communicator, counted so that its end can tell whether all has ended.
class Requests final : public Pending {
 public:
  explicit Requests(std::shared_ptr<int> open) : open_(std::move(open)) { ++*open_; }
  ~Requests() override;

  bool done() override;

  /// The place of the next request.
  MPI_Request* add() { return &handles_.emplace_back(MPI_REQUEST_NULL); }
  /// Lives until the end: what a routine reads meanwhile.
  std::vector<int>& keep(std::vector<int> numbers);
  void keep(at::Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  void after(std::function<void()> last) { after_ = std::move(last); }

 private:
  const std::shared_ptr<int> open_;
  std::vector<MPI_Request> handles_;
  std::vector<std::unique_ptr<std::vector<int>>> numbers_;
  std::vector<at::Tensor> tensors_;
  std::function<void()> after_;
};

}  // namespace hanji::comm::mpi
