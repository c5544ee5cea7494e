#include "hanji/cli/bench/calls.h"

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/message.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"

namespace hanji::cli {

using at::Tensor;
using schedule::Routine;

BenchCall call_of_group(const report::BenchCase& call, const comm::Group& group) {
  const comm::AllReduceOptions options{.op = call.op};
  const int root = call.root;
  switch (call.routine) {
    case Routine::kAllReduce:
      return [=](Tensor&, Tensor& out) { comm::all_reduce(out, group, options).wait(); };
    case Routine::kBroadcast:
      return [=](Tensor&, Tensor& out) { comm::broadcast(out, root, group).wait(); };
    case Routine::kReduce:
      return [=](Tensor& in, Tensor& out) { comm::reduce(out, in, root, group, options).wait(); };
    case Routine::kGather:
      return [=](Tensor& in, Tensor& out) { comm::gather(out, in, root, group).wait(); };
    case Routine::kScatter:
      return [=](Tensor& in, Tensor& out) { comm::scatter(out, in, root, group).wait(); };
    case Routine::kAllGather:
      return [=](Tensor& in, Tensor& out) { comm::all_gather(out, in, group).wait(); };
    case Routine::kReduceScatter:
      return [=](Tensor& in, Tensor& out) { comm::reduce_scatter(out, in, group, options).wait(); };
    case Routine::kAllToAll:
      return [=](Tensor& in, Tensor& out) { comm::all_to_all(out, in, group).wait(); };
    case Routine::kSend: {
      const int to = (root + 1) % group.size();
      if (group.rank() == root) {
        return [=](Tensor& in, Tensor&) { comm::send(in, to, group).wait(); };
      }
      if (group.rank() != to) return [](Tensor&, Tensor&) {};
      return [=](Tensor&, Tensor& out) { comm::recv(out, root, group).wait(); };
    }
    default: return [=](Tensor&, Tensor&) { comm::barrier(group); };
  }
}

}  // namespace hanji::cli
