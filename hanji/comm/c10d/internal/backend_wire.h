#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hanji/comm/internal/wire.h"

namespace c10d {
class Backend;
}

namespace hanji::comm::c10d {

/// A backend that a group and its channels call from threads of their own.
struct SharedBackend {
  SharedBackend(c10::intrusive_ptr<::c10d::Backend> called, std::chrono::nanoseconds limit);
  ~SharedBackend();

  const c10::intrusive_ptr<::c10d::Backend> backend;
  const std::string name;
  const int rank;
  const int size;
  const std::chrono::milliseconds deadline;  ///< Of every call.
  std::mutex mutex;                          ///< Held while something is posted, not while waiting.
};

/// A c10d backend as a wire, for CPU tensors. It blocks, because the works of c10d's sends can only
/// be waited for, not polled.
class BackendWire final : public Wire {
 public:
  explicit BackendWire(std::shared_ptr<SharedBackend> shared) : shared_(std::move(shared)) {}

  std::string_view name() const override { return shared_->name; }
  int rank() const override { return shared_->rank; }
  int size() const override { return shared_->size; }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine routine, Shares shares) const override;
  bool blocks() const override { return true; }

  std::unique_ptr<Pending> send(const void* from, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> receive(void* to, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override;
  std::unique_ptr<Pending> run(const Request& request) override;

 private:
  const std::shared_ptr<SharedBackend> shared_;
};

/// Messages from one rank of a backend to another, beside its collectives: tag 1 upwards, tag 2
/// downwards.
class BackendChannel final : public Wire {
 public:
  BackendChannel(std::shared_ptr<SharedBackend> shared, int sender, int receiver);

  std::string_view name() const override { return shared_->name; }
  int rank() const override { return shared_->rank == sender_ ? 0 : 1; }
  int size() const override { return 2; }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine, Shares) const override { return false; }
  bool blocks() const override { return true; }

  std::unique_ptr<Pending> send(const void* from, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> receive(void* to, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override;
  std::unique_ptr<Pending> run(const Request& request) override;

 private:
  int peer() const { return shared_->rank == sender_ ? receiver_ : sender_; }

  const std::shared_ptr<SharedBackend> shared_;
  const int sender_;
  const int receiver_;
};

}  // namespace hanji::comm::c10d
