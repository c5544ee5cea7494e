#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/mesh/mesh.h"

namespace hanji::trace {
class Recorder;
}

namespace hanji::world {

struct WorldState;

/// What carries bytes between hosts.
enum class HostEngine : uint8_t {
  kGloo,
  kMpi,  ///< Ranks of one mpirun, or of one srun with PMIx.
};

/// This process (or, in tests, thread) among those that train together.
///
/// Keep it as long as its groups and meshes are used. Its end tells the others that this rank left
/// as it should, unless an exception ends it: then they are told to stop waiting.
class World {
 public:
  explicit World(std::unique_ptr<WorldState> state);
  World(World&& other) noexcept;
  World& operator=(World&& other) noexcept;
  ~World();

  int rank() const;
  int size() const;
  /// Index among the ranks of this host.
  int local_rank() const;
  int num_nodes() const;  ///< Hosts.
  /// Ranks of each host, which are numbered host by host.
  std::vector<int> ranks_per_node() const;

  /// All ranks.
  const comm::Group& group() const;
  /// All ranks again, on the same heap, joined between hosts by another engine.
  /// Order   every rank calls it, with the same options.
  /// Errors  throws Error: kInvalidArgument on one host; as connect().
  comm::Group joined_by(HostEngine engine, comm::GroupOptions options) const;
  /// Order   every rank calls it, with the same axes. Errors: see mesh::Mesh.
  mesh::Mesh mesh(std::vector<layout::Axis> axes) const;
  /// Where to make tensors that collectives move without a copy.
  comm::Heap& heap() const;
  /// This rank's spans, in memory that outlives the process.
  trace::Recorder* recorder() const;
  /// The plan that the launcher or ConnectOptions gave; empty if none did.
  const std::string& plan_json() const;

  /// Tells every rank and the launcher that this rank is about to fail: waits elsewhere end at once with
  /// kPeerLost and "rank 1 (...) failed: <text>; its last call was ...". The first one counts.
  ///
  /// For a program that catches an exception outside of its World. What nobody catches is told anyway,
  /// and so is what hanji::spawn(), train_model() and verify_model() throw.
  void fail(std::string_view text) const;
  void fail(const Status& status) const;
  /// Why the job has ended, as the log of this rank tells; empty before, and of its own failure.
  std::string verdict() const;

 private:
  std::unique_ptr<WorldState> state_;
};

/// What a caught exception says: an Error's code and message, anything else as kInternal.
Status status_of(std::exception_ptr exception);

}  // namespace hanji::world
