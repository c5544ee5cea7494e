#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "hanji/comm/key_value.h"

namespace c10d {
class Store;
}

namespace hanji::comm::c10d {

/// Keys and values of ours as a c10d store: enough for ProcessGroup backends to connect.
c10::intrusive_ptr<::c10d::Store> make_store(std::shared_ptr<KeyValue> keys);

}  // namespace hanji::comm::c10d
