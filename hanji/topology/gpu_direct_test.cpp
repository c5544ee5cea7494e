#include "hanji/topology/gpu_direct.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace hanji::topology {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

GpuDirectFacts two_gpus_with_everything() {
  GpuDirectFacts facts;
  facts.num_gpus = 2;
  facts.peers = {{0, 1, Verdict::kPossible, ""}};
  facts.num_rdma_nics = 1;
  facts.has_peermem = facts.has_gdrdrv = facts.has_gdrdrv_device = true;
  return facts;
}

void expect(const GpuDirectFacts& facts, size_t kind, Verdict verdict, const std::string& why) {
  const Capability one = judge_gpu_direct(facts)[kind];
  EXPECT_EQ(one.verdict, verdict) << one.name << ": " << one.reason;
  EXPECT_THAT(one.reason, HasSubstr(why)) << one.name;
}

constexpr size_t kP2p = 0, kRdma = 1, kGdrcopy = 2;

TEST(GpuDirect, AllThreeWhereEverythingIsThere) {
  const auto all = judge_gpu_direct(two_gpus_with_everything());
  ASSERT_THAT(all, SizeIs(3));
  for (const Capability& one : all) EXPECT_EQ(one.verdict, Verdict::kPossible) << one.name;
}

TEST(GpuDirect, WithoutAGpuNothing) {
  for (const Capability& one : judge_gpu_direct({})) {
    EXPECT_EQ(one.verdict, Verdict::kImpossible);
    EXPECT_THAT(one.reason, HasSubstr("no NVIDIA GPU"));
  }
}

TEST(GpuDirect, PeerAccessByPairs) {
  GpuDirectFacts facts = two_gpus_with_everything();
  facts.num_gpus = 3;
  facts.peers = {{0, 1, Verdict::kPossible, ""},
                 {0, 2, Verdict::kImpossible, "the chipset"},
                 {1, 2, Verdict::kImpossible, "the chipset"}};
  expect(facts, kP2p, Verdict::kPossible, "1 of 3 pairs; GPUs 0 and 2: the chipset");
  facts.peers.erase(facts.peers.begin());
  expect(facts, kP2p, Verdict::kImpossible, "0 of 2 pairs");
  facts.peers[0].verdict = Verdict::kUnknown;
  expect(facts, kP2p, Verdict::kUnknown, "0 of 2 pairs");
  facts.peers.clear();
  facts.gpus_unknown = "no library";
  expect(facts, kP2p, Verdict::kUnknown, "no library");
  facts.num_gpus = 1;
  expect(facts, kP2p, Verdict::kImpossible, "no peer");
}

TEST(GpuDirect, RdmaNeedsANicAndAWayToThePages) {
  GpuDirectFacts facts = two_gpus_with_everything();
  facts.has_peermem = false;
  expect(facts, kRdma, Verdict::kImpossible, "modprobe nvidia_peermem");
  facts.has_dma_buf = true;
  expect(facts, kRdma, Verdict::kPossible, "dma-buf");
  facts.num_rdma_nics = 0;
  expect(facts, kRdma, Verdict::kImpossible, "no RDMA NIC");
}

TEST(GpuDirect, GdrcopyNeedsItsDevice) {
  GpuDirectFacts facts = two_gpus_with_everything();
  facts.has_gdrdrv_device = false;
  expect(facts, kGdrcopy, Verdict::kImpossible, "/dev/gdrdrv is not there");
  facts.has_gdrdrv = false;
  expect(facts, kGdrcopy, Verdict::kImpossible, "modprobe gdrdrv");
}

TEST(GpuDirect, TheFactsAreReadBelowTheRoot) {
  namespace fs = std::filesystem;
  const fs::path root = testing::TempDir() + "/gpu_direct." + std::to_string(::getpid());
  for (const char* folder : {"sys/module/nvidia_peermem", "sys/class/infiniband/mlx5_0",
                             "proc/driver/nvidia", "proc/sys/kernel", "dev"}) {
    fs::create_directories(root / folder);
  }
  std::ofstream(root / "proc/driver/nvidia/version") << "NVRM: NVIDIA UNIX Open Kernel Module\n";
  std::ofstream(root / "proc/sys/kernel/osrelease") << "6.1.0\n";
  std::ofstream(root / "dev/gdrdrv");
  Graph graph;
  graph.add({.id = "gpu", .kind = VertexKind::kGpu, .pci_vendor = 0x10de}, -1);
  graph.add({.id = "other", .kind = VertexKind::kGpu, .pci_vendor = 0x1002}, 0);
  GpuDirectFacts facts = read_gpu_direct_facts(graph, {}, root);
  EXPECT_EQ(facts.num_gpus, 1);
  EXPECT_EQ(facts.num_rdma_nics, 1);
  EXPECT_TRUE(facts.has_peermem && facts.has_dma_buf && facts.has_gdrdrv_device);
  EXPECT_FALSE(facts.has_gdrdrv);
  std::ofstream(root / "proc/sys/kernel/osrelease") << "5.4.0-x\n";
  EXPECT_FALSE(read_gpu_direct_facts(graph, {}, root).has_dma_buf);
  fs::remove_all(root);
}

}  // namespace
}  // namespace hanji::topology
