#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hanji/comm/internal/wire.h"
#include "hanji/comm/mpi/internal/communicator.h"

namespace hanji::comm::mpi {

/// The ranks of a communicator, or two of them: a channel, whose messages have a tag of their own.
class MpiWire final : public Wire {
 public:
  explicit MpiWire(std::shared_ptr<Communicator> communicator);
  MpiWire(std::shared_ptr<Communicator> communicator, int sender, int receiver);

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine routine, Shares shares) const override;
  bool blocks() const override { return false; }
  Status check_caller() const override { return communicator_->check_thread(); }

  std::unique_ptr<Pending> send(const void* from, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> receive(void* to, int64_t bytes, int peer) override;
  /// Straight from everybody to everybody, so that those who do not come are known by name.
  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override;
  std::unique_ptr<Pending> run(const Request& request) override;
  std::vector<int> absent() const override;
  bool abandon() noexcept override;

 private:
  class Gathering;

  const std::shared_ptr<Communicator> communicator_;
  const std::vector<int> members_;  // ranks of the communicator
  const int rank_;
  const int tag_;
  const std::shared_ptr<int> open_ = std::make_shared<int>(0);
  std::shared_ptr<std::vector<MPI_Request>> heard_;  // of the last gather, by rank
};

}  // namespace hanji::comm::mpi
