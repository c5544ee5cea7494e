#include "hanji/comm/gloo/group.h"

namespace hanji::comm::gloo {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      base::unsupported("this libtorch was built without Gloo; use comm.engine = shm, or a "
                        "libtorch whose CMake files define USE_C10D_GLOO"));
}

}  // namespace

bool available() { return false; }

Group make_group(const Group&, GroupOptions) { refuse(); }

c10::intrusive_ptr<::c10d::Backend> make_backend(const Group&, const GroupOptions&) { refuse(); }

Group make_group(c10::intrusive_ptr<::c10d::Store>, int, int, GroupOptions, const std::string&) {
  refuse();
}

hierarchical::Join make_join(c10::intrusive_ptr<::c10d::Store>, int, std::string) { refuse(); }

hierarchical::Join make_join(std::shared_ptr<KeyValue>, int, std::string) { refuse(); }

}  // namespace hanji::comm::gloo
