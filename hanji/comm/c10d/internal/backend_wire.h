#pragma once

#include <c10/util/intrusive_ptr.h>

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
  explicit SharedBackend(c10::intrusive_ptr<::c10d::Backend> called);
  ~SharedBackend();

  const c10::intrusive_ptr<::c10d::Backend> backend;
  const std::string name;
  const int rank;
  const int size;
  std::mutex mutex;  ///< Held while something is posted, not while waiting.
};

/// A c10d backend as a wire, for CPU tensors: all its ranks, or two of them: a channel, whose
/// messages have a tag of their own. It blocks, because the works of c10d's sends can only be waited
/// for, not polled.
class BackendWire final : public Wire {
 public:
  explicit BackendWire(std::shared_ptr<SharedBackend> shared);
  BackendWire(std::shared_ptr<SharedBackend> shared, int sender, int receiver);

  std::string_view name() const override { return shared_->name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine routine, Shares shares) const override;
  bool blocks() const override { return true; }
  void keep(base::Deadline until) override { until_ = until; }

  std::unique_ptr<Pending> send(const void* from, int64_t bytes, int peer) override;
  std::unique_ptr<Pending> receive(void* to, int64_t bytes, int peer) override;
  /// Straight from everybody to everybody, so that those who do not come are known by name.
  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override;
  std::unique_ptr<Pending> run(const Request& request) override;
  std::vector<int> absent() const override { return *absent_; }

 private:
  class Gathering;

  const std::shared_ptr<SharedBackend> shared_;
  const std::vector<int> members_;  // ranks of the backend
  const int rank_;
  const int tag_;
  base::Deadline until_ = base::Deadline::never();
  const std::shared_ptr<std::vector<int>> absent_ = std::make_shared<std::vector<int>>();
};

}  // namespace hanji::comm::c10d
