#include "hanji/train/meet.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/comm/nccl/group.h"
#include "hanji/comm/nccl/switch_sums.h"
#include "hanji/compute/device.h"
#include "hanji/cost/select.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/world/connect.h"

namespace hanji::train {

namespace {

comm::RankNames rank_names(const layout::MeshShape& mesh) {
  if (mesh.used_axes().size() < 2) return {};
  std::vector<std::string> names;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    names.push_back(layout::name_rank(mesh, rank));
  }
  return comm::RankNames(std::move(names));
}

}  // namespace

// The plan's rates are the same on every rank.
comm::GroupOptions follow_plan(const plan::Plan& plan, comm::GroupOptions options) {
  options.deadline =
      std::chrono::nanoseconds(static_cast<int64_t>(plan.config.comm.deadline * 1e9));
  options.bits = plan.config.train.bits == plan::Bits::kFast ? comm::Bits::kFast : comm::Bits::kRun;
  options.rank_names = rank_names(plan.mesh);
  options.threads_per_rank = plan.threads;
  options.chooser =
      std::make_shared<cost::Chooser>(plan.rates, plan::named_algorithms(plan.config.comm));
  return options;
}

void fail_verb(const world::World& world) {
  const Status status = world::status_of(std::current_exception());
  world.fail(status);
  const std::string verdict = world.verdict();
  const bool is_told = !verdict.empty() && (status.message().find(verdict) != std::string::npos ||
                                            verdict.find(status.message()) != std::string::npos);
  if (!is_told) throw;
  throw Error(Status(
      status.code(),
      fmt::format("rank {} ends, because the job has ended as its log tells", world.rank())));
}

world::World meet() {
  world::ConnectOptions connect;
  connect.configure = [](const std::string& plan_json, comm::GroupOptions& options) {
    options = follow_plan(plan::plan_from_json(plan_json).or_throw(), std::move(options));
  };
  return world::connect(connect);
}

c10::Device take_device(const world::World& world, const plan::Plan& plan) {
  if (plan.config.compute.device == plan::Device::kCpu) return c10::kCPU;
  const auto gpu = compute::gpu_of(world.local_rank(), compute::find_gpus()).or_throw();
  const bool fast = plan.config.train.bits == plan::Bits::kFast;
  compute::use_gpu(gpu, fast ? compute::Repeatable::kNo : compute::Repeatable::kYes);
  return gpu;
}

namespace {

comm::Group over_nccl(const comm::Group& met, const plan::Plan& plan, c10::Device device,
                      const std::filesystem::path& log_folder, comm::GroupOptions options) {
  // The host waits for values of the device in each step: a thread must be there to end a call that
  // the device never finishes.
  options.progress = comm::Progress::kThread;
  comm::nccl::Options nccl{.variables = {}, .log_directory = log_folder};
  nccl.variables.insert(plan.config.comm.nccl.begin(), plan.config.comm.nccl.end());
  return comm::nccl::make_group(met, device, std::move(options), nccl);
}

}  // namespace

comm::Group training_group(const world::World& world, const comm::Group& met,
                           const plan::Plan& plan, c10::Device device,
                           const std::filesystem::path& log_folder) {
  const bool several = world.num_nodes() > 1;
  const plan::Engine engine = plan::engine_of(plan.config);
  comm::GroupOptions options = met.options();
  options.name = plan::name_of(engine);
  switch (engine) {
    case plan::Engine::kHierarchical:
      if (several) return met;
      throw Error(base::unsupported(fmt::format(
          "comm.engine = hierarchical joins several hosts, and all {} are on one: leave "
          "comm.engine out, or start ranks on several hosts by hanji run --nnodes",
          base::counted(world.size(), "rank"))));
    case plan::Engine::kGloo:
      // Over several hosts they have met by shared memory inside each, and Gloo between them.
      return several ? met : comm::gloo::make_group(met, std::move(options));
    case plan::Engine::kMpi:
      return several ? world.joined_by(world::HostEngine::kMpi, std::move(options))
                     : comm::mpi::make_group(met, std::move(options));
    case plan::Engine::kNccl: return over_nccl(met, plan, device, log_folder, std::move(options));
    default: return met;
  }
}

std::string describe_nccl(int rank, const std::filesystem::path& log_folder) {
  constexpr size_t kMaxLogBytes = size_t{16} << 20;
  const auto file = comm::nccl::log_file(log_folder, rank);
  const auto version = comm::nccl::find_version();
  const auto log = base::read_file(file, kMaxLogBytes);
  const comm::nccl::SwitchSums sums =
      log.ok() ? comm::nccl::read_switch_sums(*log) : comm::nccl::SwitchSums();
  return fmt::format("NCCL {}: {}; its log: {}", version.ok() ? *version : "?",
                     comm::nccl::describe(sums), file.string());
}

}  // namespace hanji::train
