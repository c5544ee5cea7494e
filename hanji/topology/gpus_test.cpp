#include "hanji/topology/gpus.h"

#include <gmock/gmock.h>

namespace hanji::topology {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

NvmlApi fake_api() {
  static const Result<Nvml> library = Nvml::load(HANJI_FAKE_NVML);  // stays loaded
  EXPECT_TRUE(library.ok()) << library.status().to_string();
  return library->api();
}

Graph host_with_one_gpu() {
  Graph graph;
  graph.add({.id = "machine"}, -1);
  graph.add({.id = "gpu:0000:01:00.0", .kind = VertexKind::kGpu, .bus_id = "0000:01:00.0"}, 0,
            {.kind = LinkKind::kPcie, .label = "PCIe 5 x16"});
  return graph;
}

std::vector<Link> nvlinks_of(const Graph& graph) {
  std::vector<Link> links;
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::kNvlink) links.push_back(link);
  }
  return links;
}

TEST(NvmlLibrary, AMissingOneIsNotFoundWithTheLoadersReason) {
  const auto nvml = Nvml::load("libhanji-no-such-nvml.so.1");
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), Code::kNotFound);
  EXPECT_THAT(nvml.status().message(), HasSubstr("libhanji-no-such-nvml.so.1"));
  EXPECT_THAT(read_gpus("libhanji-no-such-nvml.so.1").unknown, nvml.status().message());
}

TEST(NvmlLibrary, ALibraryWithoutItsEntriesIsRefused) {
  const auto nvml = Nvml::load("libm.so.6");
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), Code::kUnsupported);
}

TEST(ReadGpus, EveryGpuWithItsLinksThatAreUp) {
  const GpuReport report = read_gpus(HANJI_FAKE_NVML);
  EXPECT_EQ(report.unknown, "");
  EXPECT_EQ(report.driver, "580.1");
  ASSERT_THAT(report.gpus, SizeIs(2));
  EXPECT_EQ(report.gpus[1].bus_id, "0000:81:00.0");
  ASSERT_THAT(report.gpus[0].nvlinks, SizeIs(6));
  EXPECT_EQ(report.gpus[0].nvlinks[0], (NvlinkPort{4, NvlinkPeer::kGpu, "0000:81:00.0"}));
  EXPECT_EQ(report.gpus[0].nvlinks[5], (NvlinkPort{4, NvlinkPeer::kSwitch, "0000:c1:00.0"}));
  EXPECT_THAT(report.gpus[0].facts, Contains(Fact{"memory", "85.9 GB"}));
  ASSERT_THAT(report.peers, SizeIs(1));
  EXPECT_EQ(report.peers[0].verdict, Verdict::kPossible);
}

TEST(ReadGpus, WhatACallRefusesIsUnknownWithNvmlsReason) {
  const GpuReport report = read_gpus(fake_api());
  EXPECT_THAT(report.gpus[1].facts, Contains(Fact{"memory", "NVML: Not Supported", false}));
}

TEST(ReadGpus, AnOlderLibraryLeavesGapsAndNothingElse) {
  NvmlApi api = fake_api();
  api.nvlink_version = nullptr;
  api.nvlink_remote_type = nullptr;
  api.p2p_status = nullptr;
  const GpuReport report = read_gpus(api);
  ASSERT_THAT(report.gpus[0].nvlinks, SizeIs(6));
  EXPECT_EQ(report.gpus[0].nvlinks[0], (NvlinkPort{0, NvlinkPeer::kUnknown, "0000:81:00.0"}));
  EXPECT_EQ(report.peers[0].verdict, Verdict::kUnknown);
  EXPECT_THAT(report.peers[0].reason, HasSubstr("does not tell"));
}

TEST(ReadGpus, AFailedStartIsTheReasonForAll) {
  NvmlApi api = fake_api();
  api.init = [] { return 3; };
  EXPECT_EQ(read_gpus(api).unknown, "NVML: Not Supported");
  EXPECT_THAT(read_gpus(api).gpus, IsEmpty());
}

TEST(ReadGpus, AccessBothWaysOrTheFirstReasonAgainst) {
  NvmlApi api = fake_api();
  api.p2p_status = [](NvmlDevice, NvmlDevice, int kind, int* status) {
    *status = kind == 1 ? 1 : 0;  // reads work, writes do not
    return 0;
  };
  const GpuReport report = read_gpus(api);
  EXPECT_EQ(report.peers[0].verdict, Verdict::kImpossible);
  EXPECT_THAT(report.peers[0].reason, HasSubstr("chipset"));
}

TEST(AddGpus, LinksToOnePeerAreOneEdgeWithTheirSum) {
  Graph graph = host_with_one_gpu();
  add_gpus(graph, read_gpus(HANJI_FAKE_NVML));
  const int second = find_bus_id(graph, "0000:81:00.0");
  const int through = find_bus_id(graph, "0000:c1:00.0");
  ASSERT_GT(second, 0);
  ASSERT_GT(through, 0);
  EXPECT_EQ(graph.vertices[through].kind, VertexKind::kNvswitch);
  const std::vector<Link> links = nvlinks_of(graph);
  ASSERT_THAT(links, SizeIs(3));  // GPU to GPU once, each GPU to the switch
  EXPECT_THAT(links, Contains(AllOf(Field(&Link::from, 1), Field(&Link::to, second),
                                    Field(&Link::label, "NVLink 4 x2"),
                                    Field(&Link::bytes_per_second, 50e9))));
  EXPECT_THAT(links, Contains(AllOf(Field(&Link::from, second), Field(&Link::to, through),
                                    Field(&Link::bytes_per_second, 100e9))));
  EXPECT_NE(link_above(graph, second)->unknown, "");
}

TEST(AddGpus, AnUnknownGenerationHasNoRate) {
  NvmlApi api = fake_api();
  api.nvlink_version = nullptr;
  Graph graph = host_with_one_gpu();
  add_gpus(graph, read_gpus(api));
  ASSERT_THAT(nvlinks_of(graph), SizeIs(3));
  EXPECT_THAT(nvlinks_of(graph), Each(AllOf(Field(&Link::bytes_per_second, 0),
                                            Field(&Link::unknown, HasSubstr("generation")))));
}

TEST(NvlinkGeneration, TheArchitectureCapsWhatTheDriverSays) {
  EXPECT_EQ(nvlink_generation(1, 4), 1);
  EXPECT_EQ(nvlink_generation(3, 5), 2);
  EXPECT_EQ(nvlink_generation(4, 7), 3);
  EXPECT_EQ(nvlink_generation(6, 9), 4);
  EXPECT_EQ(nvlink_generation(7, 9), 4);
  EXPECT_EQ(nvlink_generation(7, 10), 5);
  EXPECT_EQ(nvlink_generation(0, 9), 0);
  EXPECT_EQ(nvlink_generation(99, 9), 0);
}

TEST(KernelBusId, LowerCaseWithFourDigitsOfDomain) {
  EXPECT_EQ(kernel_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(kernel_bus_id("0001ABCD:3B:00.0"), "0001abcd:3b:00.0");
  EXPECT_EQ(kernel_bus_id(""), "");
}

}  // namespace
}  // namespace hanji::topology
