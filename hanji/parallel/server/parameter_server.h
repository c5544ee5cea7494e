#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/flat.h"
#include "hanji/layout/server.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/flat_optimizer.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace hanji::parallel {

/// Whether updates of workers are synchronized.
enum class ServerTiming : uint8_t {
  kSynchronous,   ///< One update per step, of the gradients of all workers.
  kAsynchronous,  ///< One update per push; the lead of a worker over the slowest is bounded.
};

struct ParameterServerOptions {
  std::vector<int> servers = {};  ///< Ranks of the group; empty: all of them.
  std::vector<int> workers =
      {};  ///< Empty: the ranks that are not servers; if there are none, all.
  ServerTiming timing = ServerTiming::kSynchronous;
  /// Synchronous: kMean or kSum over workers (grains). Asynchronous: not used; pushes are not averaged.
  Average average = Average::kMean;
  /// Asynchronous: the maximum lead of a worker over the slowest, in finished steps, at the start of a
  /// step; beyond it the worker waits. 0: all workers start a step together.
  int64_t max_staleness = 4;
  /// Stable bits, as DataParallelOptions::num_grains: each backward() is the grain that grain()
  /// selected. Owners by worker, in order of rank; empty: even shares.
  int64_t num_grains = 0;
  std::vector<layout::Range> owners = {};
  /// Makes a server's optimizer for its range; empty: flat_adamw().
  MakeOptimizer make_optimizer = {};
  GroupRule rule = decay_matrices();
  /// Synchronous: changes the sum of a server's range before the norm and the update; may be empty.
  std::function<void(at::Tensor&)> on_sum = {};
  int64_t message_bytes = 4 << 20;  ///< Size of messages with gradients and weights.
};

/// The result of a step.
struct ServerStep {
  int64_t version = 0;  ///< Of the worker's weights: number of updates, minimum over servers.
  /// Asynchronous: updates of other workers between the weights of this gradient and its update, the
  /// maximum over servers. 0 if synchronous.
  int64_t staleness = 0;
  /// Asynchronous: the lead of this worker over the slowest, in finished steps, when it pushed.
  int64_t ahead = 0;
};

class ServerState;

/// Handle of a rank to a module trained with parameter servers: workers compute gradients, push
/// them and pull weights; each server updates a range of all parameters with its optimizer.
///
///   while (...) {
///     if (server.is_worker()) { net->zero_grad(); loss(...).backward(); }
///     server.step(learning_rate);          // synchronous: all ranks
///   }
///
/// Asynchronous: workers call step() any number of times, and then finish(); ranks that only serve call
/// finish() immediately. A server that is also a worker serves the others only during its own step() and
/// finish().
///
/// Move-only. It must not outlive the module.
/// Thread  the group belongs to the calling thread.
class ParameterServer {
 public:
  explicit ParameterServer(std::unique_ptr<ServerState> state);
  ParameterServer(ParameterServer&&) noexcept;
  ParameterServer& operator=(ParameterServer&&) noexcept;
  ~ParameterServer();

  bool is_worker() const;
  bool is_server() const;
  /// Who holds which range, and what a step moves: layout::server_traffic().
  const layout::ServerShares& shares() const;
  const layout::FlatLayout& flat_layout() const;

  /// Bytes of gradients, weights and headers that this rank has exchanged with others so far.
  layout::ServerTraffic::Link moved() const;

  /// Stable: the backward() that follows is grain `index`; as Replicas::grain().
  void grain(int64_t index);
  /// Stable: this worker's grains; else empty.
  layout::Range grains() const;

  /// Pushes the gradients that the module's parameters have, and replaces the parameters by updated
  /// ones. Gradients stay as they are; a parameter without one counts zero. Asynchronous: the
  /// learning rate is that of the worker. What was written to parameters before, the same by all ranks,
  /// or to memory that torch::load() or set_data() has put in their place, is updated.
  ///
  /// Order   synchronous: every rank, each step. Asynchronous: workers.
  /// Result  synchronous: with num_grains the bits of data_parallel() and flat_adamw() on any number
  ///         of ranks; else the bits of data_parallel() without, over the workers.
  /// Cost    what layout::server_traffic() counts. Spans "push", "wait for all", "update" and "pull".
  /// Errors  throws as comm::recv(): kPeerLost naming the dead, kTimeout. kInvalidArgument, naming the
  ///         parameter, for memory of another dtype or size in its place (Module::to(), set_data()), and
  ///         where roles are split for any write to it since the start. Asynchronous: kTimeout on
  ///         a server to which nothing came for the group's deadline, naming who computes and who
  ///         waits; on a worker that got no answer for twice that.
  ServerStep step(double learning_rate);

  /// Synchronous: the first half of step(), which is followed by update(). Pushes, and adds up what
  /// the workers have pushed.
  ///
  /// Order   every rank.
  /// Result  the norm of the sum of all gradients, the same on every rank, with the bits of
  ///         grad_norm() of one process that has it.
  double push();
  /// The second half, with the gradients divided by `gradient_divisor` too. Where a step is to be
  /// left out, such as after a norm that is not finite, no rank calls it.
  ServerStep update(double learning_rate, double gradient_divisor);

  /// Where the next gradient of each parameter goes, in order of registration; backward may write it
  /// there in the first place. Workers only; grain() changes it.
  std::vector<at::Tensor> gradient_slots() const;

  /// Asynchronous: this worker makes no more steps; as a server, serves until no worker does.
  void finish();

  /// Gives every rank the newest parameters, also those that only serve, whose module is left alone
  /// by step().
  /// Order   every rank; asynchronous: after finish().
  void synchronize();

  /// The state of the servers' optimizers into one of torch's for the module's own parameters, and
  /// back: for files that know nothing of servers, and for other roles, ranks or strategies.
  ///
  ///   server.synchronize();
  ///   torch::optim::AdamW whole(net->parameters(), 3e-4);
  ///   server.gather_state(whole);                           // then hanji::save(file, *net, whole)
  ///   hanji::load(file, *net, whole);                       // then
  ///   auto next = hanji::parameter_server(*net, world.group());
  ///   next.scatter_state(whole);
  ///
  /// `whole`: AdamW or Adam where ranges have flat_adamw(), SGD for the momentum of flat_sgd() and
  ///          flat_lion(). Its options stay its own.
  /// Order   gather_state() is a collective, asynchronous: after finish(); scatter_state() is none.
  /// Errors  throws kUnsupported where torch's class has no place for the state; kInvalidArgument
  ///         for a state whose parameters have seen different numbers of updates.
  void gather_state(torch::optim::Optimizer& whole) const;
  void scatter_state(const torch::optim::Optimizer& whole);

  /// The optimizer of this rank's range; null on ranks that hold none.
  FlatOptimizer* optimizer() const;

 private:
  std::unique_ptr<ServerState> state_;
};

/// Makes `module` the same on all ranks of `group` (rank 0's values, also of frozen parameters) and
/// shares its parameters out. The module stays as its author wrote it; its parameters move into one flat
/// buffer of the heap.
///
/// Order   all ranks call it.
/// Errors  throws kMismatch where modules differ, kInvalidArgument where another handle trains a
///         parameter and for roles, owners or bounds that make no sense, kUnsupported for parameters
///         of several dtypes, of 16 bits with num_grains, off the CPU, for kWeighted, and for
///         num_grains with kAsynchronous, which is stable in no sense. Later, step(), push() and
///         synchronize() throw kInvalidArgument on a rank whose module has changed, naming what:
///         a frozen parameter that requires a gradient, a new one, another dtype, other memory.
/// Source  Li et al., Parameter Server, OSDI 2014; Ho et al., Stale Synchronous Parallel, NIPS 2013.
ParameterServer parameter_server(torch::nn::Module& module, const comm::Group& group,
                                 const ParameterServerOptions& options = {});

}  // namespace hanji::parallel
