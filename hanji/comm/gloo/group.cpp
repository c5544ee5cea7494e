#include "hanji/comm/gloo/group.h"

#include <arpa/inet.h>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "hanji/base/sigpipe_guard.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/c10d/group.h"
#include "hanji/comm/c10d/store.h"

namespace hanji::comm::gloo {
namespace {

using Gloo = ::c10d::ProcessGroupGloo;
using StorePtr = c10::intrusive_ptr<::c10d::Store>;

struct Place {
  StorePtr store;
  int rank;
  int size;
  std::string interface;
};

bool is_address(const std::string& text) {
  in6_addr parsed{};
  return inet_pton(AF_INET, text.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &parsed) == 1;
}

c10::intrusive_ptr<::c10d::Backend> connect(const Place& place, const GroupOptions& options) {
  const auto deadline = std::chrono::ceil<std::chrono::milliseconds>(options.deadline);
  auto gloo = Gloo::Options::create(deadline);
  const base::SigpipeGuard guard;  // for Gloo's threads: they write to peers that have died
  try {
    gloo->devices.push_back(is_address(place.interface)
                                ? Gloo::createDeviceForHostname(place.interface)
                                : Gloo::createDeviceForInterface(place.interface));
    return c10::make_intrusive<Gloo>(place.store, place.rank, place.size, gloo);
  } catch (const std::exception& error) {
    throw Error(base::timeout(fmt::format(
        "group {}: rank {} of {} could not connect by Gloo on {} within {} ms: {}", options.name,
        place.rank, place.size, place.interface, deadline.count(), error.what())));
  }
}

Group make_group_at(const Place& place, GroupOptions options) {
  auto divide = [place](int id, const std::vector<int>& members, GroupOptions divided) {
    Place part = place;
    const std::string prefix = fmt::format("{}.{}", id, members[0]);
    part.store = c10::make_intrusive<::c10d::PrefixStore>(prefix, place.store);
    part.rank = static_cast<int>(std::ranges::find(members, place.rank) - members.begin());
    part.size = static_cast<int>(members.size());
    return make_group_at(part, std::move(divided));
  };
  auto backend = connect(place, options);
  return c10d::make_group(std::move(backend), Heap::private_arena(), std::move(divide),
                          std::move(options));
}

/// A store that rank 0 serves on a free port of the loopback, told to the others through `meet`.
StorePtr meeting_store(const Group& meet) {
  const base::SigpipeGuard guard;  // for the thread that serves it
  ::c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  StorePtr store;
  at::Tensor port = at::full({1}, 0, at::kLong);
  if (meet.rank() == 0) {
    auto server = c10::make_intrusive<::c10d::TCPStore>("127.0.0.1", options);
    port.fill_(static_cast<int64_t>(server->getPort()));
    store = server;
  }
  broadcast(port, 0, meet, {.label = "port of Gloo's meeting"}).wait();
  if (meet.rank() == 0) return store;
  options.isServer = false;
  options.port = static_cast<uint16_t>(port.item<int64_t>());
  return c10::make_intrusive<::c10d::TCPStore>("127.0.0.1", options);
}

}  // namespace

bool available() { return true; }

c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& meet, const GroupOptions& options) {
  return connect({meeting_store(meet), meet.rank(), meet.size(), kLoopback}, options);
}

Group make_group(const Group& meet, GroupOptions options) {
  auto divide = [meet](int /*id*/, const std::vector<int>& members, GroupOptions divided) {
    return make_group(meet.subgroup(members, divided.name), std::move(divided));
  };
  auto backend = make_backend(meet, options);
  return c10d::make_group(std::move(backend), meet.heap(), std::move(divide), std::move(options));
}

Group make_group(c10::intrusive_ptr<::c10d::Store> store, int rank, int size, GroupOptions options,
                 const std::string& interface) {
  return make_group_at({std::move(store), rank, size, interface}, std::move(options));
}

hierarchical::Join make_join(StorePtr store, int rank, std::string interface) {
  return [store = std::move(store), rank, interface = std::move(interface)](
             const std::string& name, const std::vector<int>& members, GroupOptions options) {
    const auto mine = std::ranges::find(members, rank) - members.begin();
    return make_group(c10::make_intrusive<::c10d::PrefixStore>("gloo." + name, store),
                      static_cast<int>(mine), static_cast<int>(members.size()), std::move(options),
                      interface);
  };
}

hierarchical::Join make_join(std::shared_ptr<KeyValue> keys, int rank, std::string interface) {
  return make_join(c10d::make_store(std::move(keys)), rank, std::move(interface));
}

}  // namespace hanji::comm::gloo
