#include "hanji/world/internal/hosts.h"

#include <memory>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/hierarchical/group.h"
#include "hanji/comm/key_value.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/launch/store.h"

namespace hanji::world {
namespace {

/// The store of the control plane for engines that know nothing of it.
class ControlPlane final : public comm::KeyValue {
 public:
  explicit ControlPlane(std::shared_ptr<launch::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    base::throw_if_error(store_->set(key, value));
  }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    base::throw_if_error(store_->wait(keys, base::Deadline::after(timeout)));
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key, base::Deadline::after(timeout)).or_throw();
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_->add(key, amount).or_throw();
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return store_->compare_set(key, expected, desired).or_throw();
  }
  bool check(const std::vector<std::string>& keys) override {
    return store_->check(keys).or_throw();
  }
  bool remove(const std::string& key) override { return store_->remove(key).or_throw(); }
  int64_t num_keys() override { return store_->num_keys().or_throw(); }

 private:
  std::shared_ptr<launch::Store> store_;
};

comm::hierarchical::Join join_by(const launch::Hosts& hosts, const ConnectOptions& options) {
  if (options.between_hosts == HostEngine::kMpi) return comm::mpi::make_join(hosts.rank);
  const std::string& own = hosts.store->local_address();
  return comm::gloo::make_join(std::make_shared<ControlPlane>(hosts.store), hosts.rank,
                               options.interface.empty() ? own : options.interface);
}

}  // namespace

comm::Group join_hosts(comm::Group local, const launch::Hosts& hosts, const ConnectOptions& options,
                       comm::GroupOptions group) {
  comm::hierarchical::Hosts places{{}, hosts.rank};
  for (int rank = 0; rank < hosts.world_size; ++rank) {
    places.host_of.push_back(hosts.node_of(rank));
  }
  return comm::hierarchical::make_group(std::move(local), places, join_by(hosts, options),
                                        std::move(group));
}

}  // namespace hanji::world
