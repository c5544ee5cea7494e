#include "hanji/topology/read_graph.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace hanji::topology {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

namespace fs = std::filesystem;

Graph graph_of(const std::string& description) {
  auto graph = read_graph({.synthetic = description, .root = "/nowhere", .nvml = "no.so"});
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return *std::move(graph);
}

int count(const Graph& graph, VertexKind kind) {
  return static_cast<int>(std::ranges::count(graph.vertices, kind, &Vertex::kind));
}

int find(const Graph& graph, const std::string& id) {
  const auto found = std::ranges::find(graph.vertices, id, &Vertex::id);
  EXPECT_NE(found, graph.vertices.end()) << id;
  return found == graph.vertices.end() ? 0 : static_cast<int>(found - graph.vertices.begin());
}

// One package with two cores; below it a root with a bridge to a GPU, a NIC of two names, a disk, a
// sound device (which carries no run's bytes) and, on hwloc's word alone, a link of 15.75 GB/s.
constexpr const char* kXml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <info name="HostName" value="far"/>
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <info name="CPUModel" value="EPYC"/>
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="L3Cache" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4" cache_size="33554432" depth="3" cache_linesize="64" cache_associativity="0" cache_type="0">
        <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
          <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6"/>
        </object>
        <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7">
          <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="8"/>
        </object>
      </object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[00-04]">
        <object type="Bridge" gp_index="21" bridge_type="1-1" depth="1" bridge_pci="0000:[01-01]" pci_busid="0000:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 01" pci_link_speed="63.015">
          <object type="PCIDev" gp_index="22" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015"/>
        </object>
        <object type="PCIDev" gp_index="23" pci_busid="0000:02:00.0" pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="15.75">
          <object type="OSDev" gp_index="24" name="ib0" osdev_type="2"/>
          <object type="OSDev" gp_index="25" name="mlx5_0" osdev_type="3"/>
        </object>
        <object type="PCIDev" gp_index="26" pci_busid="0000:03:00.0" pci_type="0108 [144d:a80a] [144d:a801] 00" pci_link_speed="0">
          <object type="OSDev" gp_index="27" name="nvme0n1" osdev_type="0"/>
        </object>
        <object type="PCIDev" gp_index="28" pci_busid="0000:04:00.0" pci_type="0403 [8086:a0c8] [8086:7270] 00" pci_link_speed="0"/>
      </object>
    </object>
  </object>
</topology>
)";

/// The files of the kernel that belong to kXml.
class FarHost : public testing::Test {
 protected:
  void SetUp() override {
    write("sys/bus/pci/devices/0000:01:00.0/max_link_speed", "32.0 GT/s PCIe");
    write("sys/bus/pci/devices/0000:01:00.0/max_link_width", "16");
    write("sys/class/net/ib0/operstate", "down");
    write("sys/class/net/lo/operstate", "unknown");
    write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
    auto graph = read_graph({.xml = kXml, .root = root_, .nvml = HANJI_FAKE_NVML});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    graph_ = *std::move(graph);
  }
  ~FarHost() override { fs::remove_all(root_); }
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  const Vertex& at(const std::string& id) { return graph_.vertices[find(graph_, id)]; }

  fs::path root_ = testing::TempDir() + "/far_host." + std::to_string(::getpid());
  Graph graph_;
};

TEST(ReadGraph, AnImaginedHostInPreOrder) {
  const Graph graph = graph_of("pack:2 [numa] l3:2 l2:2 core:1 pu:2");
  EXPECT_EQ(count(graph, VertexKind::kPackage), 2);
  EXPECT_EQ(count(graph, VertexKind::kMemory), 2);
  EXPECT_EQ(count(graph, VertexKind::kCache), 4) << "the last level alone";
  EXPECT_EQ(count(graph, VertexKind::kCore), 8);
  EXPECT_THAT(graph.vertices[find(graph, "core:1")].cpus, ElementsAre(2, 3));
  EXPECT_THAT(graph.vertices[find(graph, "memory:1")].cpus, SizeIs(8));
  EXPECT_EQ(graph.vertices[0].id, "machine");
  EXPECT_EQ(parent_of(graph, 0), -1);
  for (size_t index = 1; index < graph.vertices.size(); ++index) {
    EXPECT_LT(parent_of(graph, static_cast<int>(index)), static_cast<int>(index));
  }
  EXPECT_EQ(ancestor_of(graph, find(graph, "core:7"), VertexKind::kPackage),
            find(graph, "package:1"));
}

TEST(ReadGraph, WhereL2IsTheLastItCounts) {
  const Graph graph = graph_of("pack:1 l2:2 core:2 pu:1");
  EXPECT_EQ(count(graph, VertexKind::kCache), 2);
}

TEST(ReadGraph, ADescriptionOfNothingIsRefused) {
  const auto graph = read_graph({.synthetic = "pack:two"});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(graph.status().message(), HasSubstr("pack:two"));
}

TEST(ReadGraph, XmlOfNothingIsRefused) {
  const auto graph = read_graph({.xml = "<no topology/>"});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), Code::kInvalidArgument);
}

TEST(ReadGraph, ThisHostHasCoresAndSaysWhatItDoesNotKnow) {
  const auto graph = read_graph();
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_GE(count(*graph, VertexKind::kCore), 1);
  EXPECT_GE(count(*graph, VertexKind::kMemory), 1);
  EXPECT_THAT(graph->gpu_direct, SizeIs(3));
  for (const Link& link : graph->links) {
    EXPECT_TRUE(link.kind == LinkKind::kInside || link.bytes_per_second > 0 ||
                !link.unknown.empty());
  }
}

TEST_F(FarHost, BridgesAndDevicesThatMatter) {
  EXPECT_EQ(count(graph_, VertexKind::kBridge), 2);
  EXPECT_EQ(count(graph_, VertexKind::kDisk), 1);
  EXPECT_EQ(parent_of(graph_, find(graph_, "gpu:0000:01:00.0")),
            find(graph_, "bridge:0000:00:01.0"));
  EXPECT_EQ(parent_of(graph_, find(graph_, "bridge:0000:00:01.0")),
            find(graph_, "bridge:host:0000:[00-04]"));
  EXPECT_EQ(find_bus_id(graph_, "0000:04:00.0"), -1) << "a sound device is none";
  EXPECT_THAT(at("disk:0000:03:00.0").facts, Contains(Fact{"block device", "nvme0n1"}));
  EXPECT_EQ(at("machine").name, "machine far");
  EXPECT_EQ(at("package:0").name, "package 0 EPYC");
}

TEST_F(FarHost, RatesFromTheKernelThenFromHwlocThenUnknown) {
  const Link* gpu = link_above(graph_, find(graph_, "gpu:0000:01:00.0"));
  EXPECT_EQ(gpu->label, "PCIe 5 x16");
  EXPECT_NEAR(gpu->bytes_per_second, 63.015e9, 1e6);
  const Link* nic = link_above(graph_, find(graph_, "nic:0000:02:00.0"));
  EXPECT_NEAR(nic->bytes_per_second, 15.75e9, 1e6);
  const Link* disk = link_above(graph_, find(graph_, "disk:0000:03:00.0"));
  EXPECT_EQ(disk->bytes_per_second, 0);
  EXPECT_THAT(disk->unknown, HasSubstr("no link speed"));
}

TEST_F(FarHost, NetworksWithTheirRateOrTheReason) {
  const auto& facts = at("nic:0000:02:00.0").facts;
  EXPECT_THAT(facts, Contains(Fact{"ib0", "the link is down", false}));
  EXPECT_THAT(facts, Contains(Fact{"mlx5_0:1", "400 Gb/sec (4X NDR), 50.0 GB/s one way"}));
  EXPECT_THAT(at("nic:lo").facts, Contains(Fact{"lo", "the driver gives no speed", false}));
}

TEST_F(FarHost, NvlinksAndGpuDirect) {
  EXPECT_EQ(count(graph_, VertexKind::kGpu), 2) << "one of them is NVML's word alone";
  EXPECT_EQ(count(graph_, VertexKind::kNvswitch), 1);
  EXPECT_EQ(std::ranges::count(graph_.links, LinkKind::kNvlink, &Link::kind), 3);
  EXPECT_THAT(at("gpu:0000:01:00.0").facts, Contains(Fact{"NVLinks up", "6"}));
  ASSERT_THAT(graph_.gpu_direct, SizeIs(3));
  EXPECT_EQ(graph_.gpu_direct[0].reason, "all 1 pairs");
  EXPECT_THAT(graph_.gpu_direct[1].reason, HasSubstr("modprobe nvidia_peermem"));
}

TEST_F(FarHost, WithoutNvmlTheReasonIsANote) {
  const auto graph = read_graph({.xml = kXml, .root = root_, .nvml = "no-nvml.so"});
  ASSERT_TRUE(graph.ok());
  ASSERT_THAT(graph->notes, SizeIs(1));
  EXPECT_FALSE(graph->notes[0].known);
  EXPECT_THAT(graph->notes[0].value, HasSubstr("no-nvml.so"));
}

}  // namespace
}  // namespace hanji::topology
