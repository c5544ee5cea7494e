#include "hanji/plan/nccl_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/text.h"

namespace hanji::plan {
namespace {

constexpr auto kVariables = std::to_array<NcclVariable>({
    {"NCCL_ALGO",
     "algorithms that may be used, e.g. Ring,Tree; pins the bits of train.bits = fast"},
    {"NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1 gives messages between hosts buffers of the protocol LL"},
    {"NCCL_BUFFSIZE", "bytes of the buffer between two GPUs"},
    {"NCCL_CGA_CLUSTER_SIZE", "thread blocks of a cluster, 0 to 8"},
    {"NCCL_CHECKS_DISABLE", "1 leaves out the checks of arguments"},
    {"NCCL_CHECK_MODE", "how far the arguments of calls are checked"},
    {"NCCL_CHECK_POINTERS", "1 checks the addresses that each call is given"},
    {"NCCL_COLLNET_ENABLE", "sums in InfiniBand switches (SHARP): 1 on, else off"},
    {"NCCL_COLLNET_NODE_THRESHOLD", "fewest hosts for sums in InfiniBand switches"},
    {"NCCL_CONF_FILE", "file with more variables of NCCL"},
    {"NCCL_CROSS_NIC", "whether rings may use different adapters on different hosts: 0, 1 or 2"},
    {"NCCL_CTA_POLICY", "how many processors of a GPU calls may take: 0 for speed, 1 for few"},
    {"NCCL_CUMEM_ENABLE", "memory by CUDA's virtual addresses: 0 off, 1 on"},
    {"NCCL_CUMEM_HOST_ENABLE", "the same for memory of the host: 0 off, 1 on"},
    {"NCCL_DEBUG", "how much NCCL logs: WARN, INFO or TRACE"},
    {"NCCL_DEBUG_FILE", "where NCCL logs; hanji names one file per rank by itself"},
    {"NCCL_DEBUG_SUBSYS", "which parts of NCCL log, e.g. INIT,NET"},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", "the time in NCCL's log, as strftime writes it"},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", "which levels of NCCL's log carry the time"},
    {"NCCL_DMABUF_ENABLE", "memory of GPUs to adapters by dma-buf: 0 off, 1 on"},
    {"NCCL_ENV_PLUGIN", "library that sets variables of NCCL"},
    {"NCCL_GDRCOPY_ENABLE", "small writes to GPUs by GDRCopy: 0 off, 1 on"},
    {"NCCL_GDRCOPY_FIFO_ENABLE", "of them those that announce work: 0 off, 1 on"},
    {"NCCL_GDRCOPY_FLUSH_ENABLE", "GDRCopy flushes what adapters have written: 0 off, 1 on"},
    {"NCCL_GDRCOPY_SYNC_ENABLE", "of small writes those that synchronise: 0 off, 1 on"},
    {"NCCL_GIN_PLUGIN", "library of networks that GPUs drive themselves"},
    {"NCCL_GRAPH_MIXING_SUPPORT",
     "0 where a communicator serves either graphs or streams, never both"},
    {"NCCL_GRAPH_REGISTER", "registers buffers of CUDA graphs: 0 off, 1 on"},
    {"NCCL_GRAPH_STREAM_ORDERING", "whether calls of CUDA graphs keep the order of their streams"},
    {"NCCL_HOSTID", "names the host; processes with one name share it"},
    {"NCCL_IB_ADAPTIVE_ROUTING", "adaptive routing of InfiniBand: 0 off, 1 on"},
    {"NCCL_IB_ADDR_FAMILY", "AF_INET or AF_INET6, of RoCE"},
    {"NCCL_IB_ADDR_RANGE", "addresses of RoCE that may be used, as a prefix"},
    {"NCCL_IB_AR_THRESHOLD", "bytes from which messages go by adaptive routing"},
    {"NCCL_IB_CUDA_SUPPORT", "forces or forbids memory of GPUs to adapters: 1 or 0"},
    {"NCCL_IB_DISABLE", "1 keeps NCCL off InfiniBand, on slower sockets"},
    {"NCCL_IB_ECE_ENABLE", "enhanced connections of InfiniBand: 0 off, 1 on"},
    {"NCCL_IB_EVENT_BASED_LB", "events of adapters balance the load of InfiniBand: 0 off, 1 on"},
    {"NCCL_IB_FIFO_TC", "traffic class of control messages of InfiniBand"},
    {"NCCL_IB_GID_INDEX", "index of the RoCE address"},
    {"NCCL_IB_HCA", "InfiniBand adapters, e.g. mlx5_0,mlx5_1"},
    {"NCCL_IB_MERGE_NICS", "1 joins the ports of one adapter"},
    {"NCCL_IB_OOO_RQ", "messages of InfiniBand may come out of order: 0 off, 1 on"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "relaxed order on PCIe: 0 off, 1 on, 2 where possible"},
    {"NCCL_IB_QPS_PER_CONNECTION", "queue pairs of each connection"},
    {"NCCL_IB_RETRY_CNT", "retries of an InfiniBand message"},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", "0 ignores failures that adapters report"},
    {"NCCL_IB_ROCE_VERSION_NUM", "version of RoCE: 1 or 2"},
    {"NCCL_IB_SL", "service level of InfiniBand"},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", "1 splits each message over the queue pairs"},
    {"NCCL_IB_TC", "traffic class of InfiniBand"},
    {"NCCL_IB_TIMEOUT", "timeout of InfiniBand, 4.096 us * 2^value"},
    {"NCCL_IGNORE_COLLNET_MISMATCH",
     "1 goes on where ranks differ in the library of sums in switches"},
    {"NCCL_IGNORE_CPU_AFFINITY", "1 pins NCCL's threads by the GPU alone, not by the rank's cores"},
    {"NCCL_IGNORE_NET_MISMATCH", "1 goes on where ranks differ in the network module"},
    {"NCCL_IPC_USE_ABSTRACT_SOCKET",
     "processes of a host meet at sockets without a file: 0 off, 1 on"},
    {"NCCL_LAUNCH_MODE", "PARALLEL or GROUP: how several GPUs of one process are launched"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "1 orders the calls of several communicators on one GPU"},
    {"NCCL_LAUNCH_RACE_FATAL", "1 rejects threads that launch on one GPU at once"},
    {"NCCL_LEGACY_CUDA_REGISTER", "registers buffers of cudaMalloc: 0 off, 1 on"},
    {"NCCL_LL_THRESHOLD", "bytes up to which the protocol LL is taken (old versions)"},
    {"NCCL_LOCAL_REGISTER", "registers the users' buffers: 0 off, 1 on"},
    {"NCCL_MAX_CTAS", "most thread blocks of a call"},
    {"NCCL_MAX_NCHANNELS", "most channels of a communicator"},
    {"NCCL_MAX_P2P_NCHANNELS", "most channels of a message"},
    {"NCCL_MEM_SYNC_DOMAIN", "domain of memory that kernels of NCCL synchronise in"},
    {"NCCL_MIN_CTAS", "fewest thread blocks of a call"},
    {"NCCL_MIN_NCHANNELS", "fewest channels of a communicator"},
    {"NCCL_MIN_P2P_NCHANNELS", "fewest channels of a message"},
    {"NCCL_MNNVL_CLIQUE_ID", "which GPUs of several hosts share NVLink"},
    {"NCCL_MNNVL_ENABLE", "NVLink between hosts: 0 off, 1 on, 2 where there is any"},
    {"NCCL_MNNVL_UUID", "names the NVLink domain of the host"},
    {"NCCL_MULTI_RANK_GPU_ENABLE", "several ranks on one GPU: 0 off, 1 on"},
    {"NCCL_NET", "network module, e.g. IB or Socket"},
    {"NCCL_NETDEVS_POLICY", "which adapters a GPU takes: AUTO, MAX:n or ALL"},
    {"NCCL_NET_GDR_C2C", "memory of GPUs to adapters across C2C links: 0 off, 1 on"},
    {"NCCL_NET_GDR_LEVEL",
     "how far a GPU and an adapter may lie apart for direct transfers: LOC to SYS"},
    {"NCCL_NET_GDR_READ", "adapters read memory of GPUs: 0 off, 1 on"},
    {"NCCL_NET_MERGE_POLICY", "which ports of the network are joined"},
    {"NCCL_NET_PLUGIN", "library of the network"},
    {"NCCL_NET_SHARED_BUFFERS", "connections share buffers: 0 off, 1 on"},
    {"NCCL_NET_SHARED_COMMS", "connections share adapters' queues: 0 off, 1 on"},
    {"NCCL_NSOCKS_PERTHREAD", "sockets of each thread of the network"},
    {"NCCL_NTHREADS", "threads of a block: 64, 128, 256 or 512"},
    {"NCCL_NVB_DISABLE", "1 keeps NCCL off NVLink through another GPU"},
    {"NCCL_NVLS_ENABLE", "sums in NVSwitch: 0 off, 1 on, 2 where the GPUs have it"},
    {"NCCL_NVLS_NCHANNELS", "channels of sums in NVSwitch"},
    {"NCCL_OOB_NET_ENABLE", "1 lets ranks meet over the network module"},
    {"NCCL_OOB_NET_IFNAME", "interface of that"},
    {"NCCL_P2P_DIRECT_DISABLE", "1 keeps GPUs of one process off each other's memory"},
    {"NCCL_P2P_DISABLE", "1 keeps NCCL off NVLink and PCIe between GPUs"},
    {"NCCL_P2P_LEVEL",
     "how far two GPUs may lie apart for direct transfers: LOC, NVL, PIX, PXB, PHB or SYS"},
    {"NCCL_P2P_LL_THRESHOLD", "bytes up to which messages take the protocol LL"},
    {"NCCL_P2P_NET_CHUNKSIZE", "bytes of a piece of a message between hosts"},
    {"NCCL_P2P_PXN_LEVEL", "when messages go by another GPU's adapter: 0, 1 or 2"},
    {"NCCL_P2P_USE_CUDA_MEMCPY", "1 lets copy engines move what GPUs exchange"},
    {"NCCL_PROFILER_PLUGIN", "library that profiles"},
    {"NCCL_PROTO",
     "protocols that may be used: LL, LL128, Simple; pins the bits of train.bits = fast"},
    {"NCCL_PXN_C2C", "adapters of other GPUs across C2C links: 0 off, 1 on"},
    {"NCCL_PXN_DISABLE", "1 keeps NCCL off the adapters of other GPUs"},
    {"NCCL_RAS_ADDR", "address of the service that tells what hangs"},
    {"NCCL_RAS_ENABLE", "that service: 0 off, 1 on"},
    {"NCCL_RAS_TIMEOUT_FACTOR", "factor of its timeouts"},
    {"NCCL_RMA_EAGER_INIT", "1 prepares one-sided transfers when a communicator is made"},
    {"NCCL_RMA_PLUGIN", "library of one-sided transfers"},
    {"NCCL_RUNTIME_CONNECT",
     "1 connects an algorithm at its first call, 0 all of them at the start"},
    {"NCCL_SET_STACK_SIZE", "1 sets the stack of CUDA's kernels at the start"},
    {"NCCL_SET_THREAD_NAME", "1 names NCCL's threads"},
    {"NCCL_SHM_DISABLE", "1 keeps NCCL off shared memory within a host"},
    {"NCCL_SHM_USE_CUDA_MEMCPY", "1 lets copy engines move what goes through shared memory"},
    {"NCCL_SINGLE_RING_THRESHOLD", "bytes up to which one ring serves (old versions)"},
    {"NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6, of sockets between hosts"},
    {"NCCL_SOCKET_IFNAME", "interface between hosts, e.g. eth0; ^docker leaves out"},
    {"NCCL_SOCKET_NTHREADS", "threads of the network over sockets"},
    {"NCCL_SOCKET_RETRY_CNT", "retries of a refused connection"},
    {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "milliseconds between those"},
    {"NCCL_SYM_GIN_KERNELS_ENABLE", "symmetric kernels over networks that GPUs drive: 0 off, 1 on"},
    {"NCCL_TOPO_DUMP_FILE", "file that gets the topology found"},
    {"NCCL_TOPO_FILE", "file with the topology"},
    {"NCCL_TREE_THRESHOLD", "bytes up to which trees serve (old versions)"},
    {"NCCL_TUNER_PLUGIN", "library that chooses algorithms"},
    {"NCCL_UID_STAGGER_RATE", "ranks that may connect to the first one per second"},
    {"NCCL_UID_STAGGER_THRESHOLD",
     "ranks from which they connect to the first one one after another"},
    {"NCCL_WIN_ENABLE", "windows of symmetric memory: 0 off, 1 on"},
    {"NCCL_WORK_FIFO_BYTES", "bytes of the queue of calls on a GPU"},
});
static_assert(std::ranges::is_sorted(kVariables, {}, &NcclVariable::name));

}  // namespace

std::span<const NcclVariable> nccl_variables() { return kVariables; }

const NcclVariable* find_nccl_variable(std::string_view name) {
  const auto found = std::ranges::lower_bound(kVariables, name, {}, &NcclVariable::name);
  return found != kVariables.end() && found->name == name ? &*found : nullptr;
}

std::vector<std::string> overridden_variables(const Config& config,
                                              std::span<const base::NamedValue> environment) {
  std::vector<std::string> lines;
  for (const base::NamedValue& one : environment) {
    const auto found = config.comm.nccl.find(one.name);
    if (found == config.comm.nccl.end() || found->second == one.value) continue;
    lines.push_back(fmt::format("{} is {} in the environment and {} in [comm.nccl], which holds",
                                one.name, base::json_quote(one.value),
                                base::json_quote(found->second)));
  }
  return lines;
}

}  // namespace hanji::plan
