#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <fmt/format.h>

#include "hanji/cli/bench/calls.h"
#include "hanji/comm/gloo/group.h"

namespace hanji::cli {

using at::Tensor;
using schedule::ReduceOp;
using schedule::Routine;

struct GlooCalls::State {
  c10::intrusive_ptr<::c10d::Backend> gloo;
  int rank;
  int size;
};

namespace {

using Tensors = std::vector<Tensor>;

::c10d::ReduceOp op_of(const report::BenchCase& call) {
  switch (call.op) {
    case ReduceOp::kSum: return ::c10d::ReduceOp::SUM;
    case ReduceOp::kMin: return ::c10d::ReduceOp::MIN;
    case ReduceOp::kMax: return ::c10d::ReduceOp::MAX;
    case ReduceOp::kProd: return ::c10d::ReduceOp::PRODUCT;
    default: break;
  }
  throw Error(base::unsupported(fmt::format("gloo is not asked for {}", name_of(call.op))));
}

Tensors shares_of(const Tensor& all, int ranks) { return all.chunk(ranks); }

}  // namespace

GlooCalls::GlooCalls(const comm::Group& meet)
    : state_(new State{comm::gloo::make_backend(meet), meet.rank(), meet.size()}) {}
GlooCalls::~GlooCalls() = default;

BenchCall GlooCalls::call_of(const report::BenchCase& call) const {
  const std::shared_ptr<State> state = state_;
  const int root = call.root;
  switch (call.routine) {
    case Routine::kAllReduce:
      return [=, op = op_of(call)](Tensor&, Tensor& out) {
        Tensors tensors = {out};
        state->gloo->allreduce(tensors, {.reduceOp = op})->wait();
      };
    case Routine::kBroadcast:
      return [=](Tensor&, Tensor& out) {
        Tensors tensors = {out};
        state->gloo->broadcast(tensors, {.rootRank = root})->wait();
      };
    case Routine::kReduce:
      return [=, op = op_of(call)](Tensor& in, Tensor& out) {
        // It reduces in place only.
        if (state->rank == root && out.data_ptr() != in.data_ptr()) out.copy_(in);
        Tensors tensors = {state->rank == root ? out : in};
        state->gloo->reduce(tensors, {.reduceOp = op, .rootRank = root})->wait();
      };
    case Routine::kAllGather:
      return [=](Tensor& in, Tensor& out) { state->gloo->_allgather_base(out, in)->wait(); };
    case Routine::kReduceScatter:
      return [=, op = op_of(call)](Tensor& in, Tensor& out) {
        state->gloo->_reduce_scatter_base(out, in, {.reduceOp = op})->wait();
      };
    case Routine::kGather:
      return [=](Tensor& in, Tensor& out) {
        std::vector<Tensors> outputs;
        if (state->rank == root) outputs.push_back(shares_of(out, state->size));
        Tensors inputs = {in};
        state->gloo->gather(outputs, inputs, {.rootRank = root})->wait();
      };
    case Routine::kScatter:
      return [=](Tensor& in, Tensor& out) {
        std::vector<Tensors> inputs;
        if (state->rank == root) inputs.push_back(shares_of(in, state->size));
        Tensors outputs = {out};
        state->gloo->scatter(outputs, inputs, {.rootRank = root})->wait();
      };
    case Routine::kAllToAll:
      if (call.in_place) throw Error(base::unsupported("gloo has no all_to_all in place"));
      return [=](Tensor& in, Tensor& out) {
        std::vector<int64_t> even;
        state->gloo->alltoall_base(out, in, even, even)->wait();
      };
    case Routine::kSend:
      return [=](Tensor& in, Tensor& out) {
        const int to = (root + 1) % state->size;
        Tensors tensors = {state->rank == root ? in : out};
        if (state->rank == root) state->gloo->send(tensors, to, 0)->wait();
        if (state->rank == to) state->gloo->recv(tensors, root, 0)->wait();
      };
    default: return [=](Tensor&, Tensor&) { state->gloo->barrier()->wait(); };
  }
}

}  // namespace hanji::cli
