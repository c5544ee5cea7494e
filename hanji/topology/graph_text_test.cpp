#include "hanji/topology/graph_text.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/json.h"

namespace hanji::topology {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A machine with a core, two GPUs joined by NVLink, and a NIC whose rate nobody knows.
Graph small_host() {
  Graph graph;
  graph.add({.id = "machine", .name = "machine <a&b>", .bytes = 1 << 30}, -1);
  graph.add({.id = "core:0", .kind = VertexKind::kCore, .name = "core 0", .cpus = {0, 1, 2, 8}}, 0);
  const Link pcie{.kind = LinkKind::kPcie, .label = "PCIe 5 x16", .bytes_per_second = 63e9};
  graph.add({.id = "gpu:a", .kind = VertexKind::kGpu, .name = "GPU a", .bus_id = "a"}, 0, pcie);
  graph.add({.id = "gpu:b", .kind = VertexKind::kGpu, .name = "GPU b"}, 0, pcie);
  graph.add({.id = "nic:c",
             .kind = VertexKind::kNic,
             .name = "NIC c",
             .facts = {{"eth0", "no cable", false}}},
            0, {.kind = LinkKind::kPcie, .label = "PCI", .unknown = "nobody says"});
  graph.links.push_back({2, 3, LinkKind::kNvlink, "NVLink 4 x18", 450e9, ""});
  graph.gpu_direct = {{"P2P", Verdict::kPossible, "all 1 pairs"}};
  graph.notes = {{"driver", "580"}, {"GPUs", "half of them", false}};
  return graph;
}

/// Tags of an XML text must close in order. Result: whether they do.
bool is_well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find('<', at);
    if (text.substr(at, begin - at).find('>') != std::string::npos) return false;
    if (begin == std::string::npos) break;
    const size_t end = text.find('>', begin);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(begin + 1, end - begin - 1);
    if (std::ranges::count(tag, '"') % 2 != 0 || tag.find('<') != std::string::npos) return false;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty();
}

TEST(GraphText, ATreeThenLinksAndReasons) {
  EXPECT_EQ(graph_text(small_host()),
            "machine <a&b>, 1.07 GB\n"
            "+- core 0, CPUs 0-2,8\n"
            "+- GPU a  <PCIe 5 x16, 63.0 GB/s one way>\n"
            "+- GPU b  <PCIe 5 x16, 63.0 GB/s one way>\n"
            "+- NIC c, eth0 unknown: no cable  <PCI, rate unknown: nobody says>\n"
            "\n"
            "gpu:a - gpu:b: NVLink 4 x18, 450 GB/s one way\n"
            "GPUDirect P2P      possible: all 1 pairs\n"
            "driver             580\n"
            "GPUs               unknown: half of them\n"
            "GB = 10^9 bytes\n");
}

TEST(GraphJson, VerticesLinksAndNullForWhatIsUnknown) {
  const auto json = base::parse_json(graph_json(small_host(), nullptr));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  ASSERT_EQ((*json)["vertices"].size(), 5u);
  EXPECT_TRUE((*json)["vertices"][0]["parent"].is_null());
  EXPECT_EQ((*json)["vertices"][1]["parent"], "machine");
  EXPECT_EQ((*json)["vertices"][1]["kind"], "core");
  EXPECT_EQ((*json)["vertices"][1]["cpus"][3], 8);
  EXPECT_EQ((*json)["vertices"][4]["unknown"]["eth0"], "no cable");
  ASSERT_EQ((*json)["links"].size(), 5u);
  EXPECT_TRUE((*json)["links"][3]["bytes_per_second"].is_null());
  EXPECT_EQ((*json)["links"][3]["unknown"], "nobody says");
  EXPECT_EQ((*json)["links"][4]["kind"], "nvlink");
  EXPECT_EQ((*json)["links"][4]["from"], "gpu:a");
  EXPECT_EQ((*json)["links"][4]["bytes_per_second"], 450e9);
  EXPECT_EQ((*json)["gpu_direct"][0]["verdict"], "possible");
  EXPECT_EQ((*json)["notes"]["driver"], "580");
  EXPECT_EQ((*json)["unknown"]["GPUs"], "half of them");
  EXPECT_TRUE((*json)["measured"].is_null());
}

TEST(GraphJson, HoldsWhatWasMeasured) {
  CoreRates rates{.bytes = 4096};
  rates.copies = {{.num_copies = 1, .bytes_per_second = 1e9}};
  const auto json = base::parse_json(graph_json(small_host(), &rates));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["measured"]["copies"][0]["bytes_per_second"], 1e9);
}

TEST(GraphSvg, IsWellFormedAndHoldsEveryVertexAndLink) {
  const Graph graph = small_host();
  const std::string svg = graph_svg(graph);
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  for (const Vertex& vertex : graph.vertices) {
    EXPECT_THAT(svg, HasSubstr("id=\"" + vertex.id + "\""));
  }
  EXPECT_THAT(svg, HasSubstr("machine &lt;a&amp;b&gt;"));
  EXPECT_THAT(svg, HasSubstr("NVLink 4 x18, 450 GB/s"));
  EXPECT_THAT(svg, HasSubstr("PCIe 5 x16, 63.0 GB/s"));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(GraphSvg, HostileNamesStayText) {
  Graph graph = small_host();
  graph.vertices[1].name = "</text><script>\"\x01\xff";
  const std::string svg = graph_svg(graph);
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_TRUE(std::ranges::all_of(svg, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(FormatCpus, RangesOfNeighbours) {
  EXPECT_EQ(format_cpus({}), "");
  EXPECT_EQ(format_cpus({3}), "3");
  EXPECT_EQ(format_cpus({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
}

}  // namespace
}  // namespace hanji::topology
