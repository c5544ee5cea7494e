#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/group.h"
#include "hanji/comm/key_value.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace hanji::comm::gloo {

/// Whether this libtorch was built with Gloo; the functions below throw Error(kUnsupported) if not.
bool available();

/// Where ranks listen: a network interface of this host, or one of its addresses.
inline constexpr const char* kLoopback = "lo";

/// The ranks of `meet` again, connected by Gloo over TCP on this host's loopback.
///
/// Rank 0 serves their addresses on a free loopback port, which it tells through `meet`. Called by
/// every rank of `meet`; tensors of the new group's heap() are those of `meet`.
/// Errors  throws Error(kTimeout) where they do not connect within the deadline.
Group make_group(const Group& meet, GroupOptions options = {});

/// The same ranks connected by Gloo alone: a c10d backend with nothing of ours around it, for
/// comparison. Errors: as make_group().
c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& meet,
                                                 const GroupOptions& options = {});

/// Ranks that meet through a c10d store of the caller.
Group make_group(c10::intrusive_ptr<::c10d::Store> store, int rank, int size,
                 GroupOptions options = {}, const std::string& interface = kLoopback);

/// Connects ranks of several hosts by Gloo: `rank` is the caller's among all that share the store,
/// and `interface` a network of this host that leads to the others.
hierarchical::Join make_join(c10::intrusive_ptr<::c10d::Store> store, int rank,
                             std::string interface);
/// The same through keys and values of the caller's. Errors: kUnsupported without Gloo.
hierarchical::Join make_join(std::shared_ptr<KeyValue> keys, int rank, std::string interface);

}  // namespace hanji::comm::gloo
