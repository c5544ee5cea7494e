// A rank for inherited_test.cpp: does what its argument says, tells what it saw on stdout.
#include <fcntl.h>
#include <fmt/format.h>

#include <string>

#include "hanji/launch/hosts.h"
#include "hanji/launch/inherited.h"
#include "hanji/shm/segment.h"

using namespace hanji;
using namespace std::chrono_literals;

namespace {

int num_open(const std::vector<base::Fd>& pidfds) {
  int count = 0;
  for (const base::Fd& pidfd : pidfds) count += ::fcntl(pidfd.get(), F_GETFD) == FD_CLOEXEC;
  return count;
}

int print_all() {
  auto inherited = launch::inherited_endpoints();
  if (!inherited.ok()) return fmt::print("{}\n", inherited.status().to_string()), 1;
  auto& endpoints = inherited->endpoints;
  fmt::print("rank {} of {}, {} peers, plan {}\n", endpoints.rank, endpoints.size,
             num_open(endpoints.pidfds), inherited->plan_json);
  fmt::print("closed on exec {} {}\n", ::fcntl(endpoints.segment.get(), F_GETFD) == FD_CLOEXEC,
             ::fcntl(endpoints.control.get(), F_GETFD) == FD_CLOEXEC);
  const auto segment = shm::Segment::attach(std::move(endpoints.segment), inherited->build_id,
                                            launch::plan_hash(inherited->plan_json));
  fmt::print("segment {}\n",
             segment.ok() ? std::to_string((*segment)->ranks()) : segment.status().to_string());
  fmt::print("again {}\n", launch::inherited_endpoints().status().to_string());
  return 0;
}

int report_and_fail() {
  const auto inherited = launch::inherited_endpoints();
  if (!inherited.ok()) return 1;
  launch::report_failure(inherited->endpoints, base::corrupt("page 7 of the book"));
  return 3;
}

/// Adds its number to a sum that ranks of all hosts see, and tells it after all have.
int add_up() {
  const auto inherited = launch::inherited_endpoints();
  if (!inherited.ok()) return 1;
  const auto hosts = launch::join_hosts(*inherited, base::Deadline::after(30s));
  if (!hosts.ok()) return fmt::print("{}\n", hosts.status().to_string()), 1;
  launch::Store& store = *hosts->store;
  const auto deadline = base::Deadline::after(30s);
  if (!store.add("sum", hosts->rank).ok()) return 2;
  if (!store.barrier("added", hosts->rank, hosts->world_size, deadline).ok()) return 3;
  fmt::print("rank {} of {} on node {} of {}: sum {}\n", hosts->rank, hosts->world_size,
             hosts->node, hosts->num_nodes(), *store.get("sum", deadline));
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  const std::string what = arguments[1];
  if (what == "add_up") return add_up();
  return what == "tell" ? print_all() : report_and_fail();
}
