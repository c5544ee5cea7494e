#include "hanji/topology/nominal.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/topology/direct_paths.h"

namespace hanji::topology {
namespace {

using testing::HasSubstr;

double gigabytes_of(const std::string& name) {
  const auto all = nominal_links();
  const auto found = std::ranges::find(all, name, &NominalLink::name);
  EXPECT_NE(found, all.end()) << name;
  return found == all.end() ? 0 : found->bytes_per_second * 1e-9;
}

TEST(Nominal, PcieIsTransferRateTimesLanesTimesCoding) {
  EXPECT_DOUBLE_EQ(pcie_bytes_per_second(1, 1), 0.25e9);
  EXPECT_DOUBLE_EQ(pcie_bytes_per_second(2, 4), 2e9);
  EXPECT_NEAR(pcie_bytes_per_second(3, 16), 15.754e9, 1e6);
  EXPECT_NEAR(pcie_bytes_per_second(4, 16), 31.508e9, 1e6);
  EXPECT_NEAR(pcie_bytes_per_second(5, 16), 63.015e9, 1e6);
  EXPECT_DOUBLE_EQ(pcie_bytes_per_second(6, 16), 121e9);
  EXPECT_EQ(pcie_bytes_per_second(0, 16), 0);
  EXPECT_EQ(pcie_bytes_per_second(7, 16), 0);
}

TEST(Nominal, GenerationsByTransferRate) {
  EXPECT_EQ(pcie_generation(2.5), 1);
  EXPECT_EQ(pcie_generation(64), 6);
  EXPECT_EQ(pcie_generation(7), 0);
}

TEST(Nominal, GpusHaveTheSumOfTheirLinks) {
  EXPECT_DOUBLE_EQ(gigabytes_of("NVLink 1 x4 (P100)"), 80);
  EXPECT_DOUBLE_EQ(gigabytes_of("NVLink 2 x6 (V100)"), 150);
  EXPECT_DOUBLE_EQ(gigabytes_of("NVLink 3 x12 (A100)"), 300);
  EXPECT_DOUBLE_EQ(gigabytes_of("NVLink 4 x18 (H100)"), 450);
  EXPECT_DOUBLE_EQ(gigabytes_of("NVLink 5 x18 (B200)"), 900);
  EXPECT_DOUBLE_EQ(gigabytes_of("NVSwitch 3, any pair (H100)"), 450);
}

TEST(Nominal, NetworksAfterCoding) {
  EXPECT_DOUBLE_EQ(gigabytes_of("InfiniBand SDR 4x"), 1);
  EXPECT_DOUBLE_EQ(gigabytes_of("InfiniBand QDR 4x"), 4);
  EXPECT_NEAR(gigabytes_of("InfiniBand FDR 4x"), 6.818, 1e-3);
  EXPECT_DOUBLE_EQ(gigabytes_of("InfiniBand EDR 4x"), 12.5);
  EXPECT_DOUBLE_EQ(gigabytes_of("InfiniBand XDR 4x"), 100);
  EXPECT_DOUBLE_EQ(gigabytes_of("Ethernet 1G"), 0.125);
  EXPECT_DOUBLE_EQ(gigabytes_of("Ethernet 800G"), 100);
}

TEST(Nominal, EveryLinkHasRateDuplexLatencyAndSource) {
  const std::string text = nominal_text();
  for (const NominalLink& link : nominal_links()) {
    EXPECT_GT(link.bytes_per_second, 0) << link.name;
    EXPECT_EQ(link.duplex_bytes_per_second, 2 * link.bytes_per_second) << link.name;
    EXPECT_GT(link.hop_seconds, 0) << link.name;
    EXPECT_NE(link.source, "") << link.name;
    EXPECT_THAT(text, HasSubstr(link.name));
    EXPECT_THAT(text, HasSubstr(link.rate));
  }
  EXPECT_THAT(text,
              HasSubstr("InfiniBand  2.7 us  InfiniBand Architecture Specification, volume 2\n"));
  EXPECT_THAT(text, HasSubstr("InfiniBand QDR 4x   2007           1.3 us\n"));
  EXPECT_THAT(text, HasSubstr("GPUDirect Storage\n"));
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80U) << line;
}

TEST(Nominal, NetworksHaveYearsAndLatenciesOfTheirOwn) {
  const auto link = [](const std::string& name) {
    const auto all = nominal_links();
    return *std::ranges::find(all, name, &NominalLink::name);
  };
  EXPECT_DOUBLE_EQ(link("InfiniBand QDR 4x").latency_seconds, 1.3e-6);
  EXPECT_DOUBLE_EQ(link("InfiniBand HDR 4x").latency_seconds, 0.6e-6);
  EXPECT_DOUBLE_EQ(link("Ethernet 10G").latency_seconds, 10e-6);
  EXPECT_EQ(link("InfiniBand XDR 4x").latency_seconds, 0) << "no figure was found";
  EXPECT_EQ(link("InfiniBand XDR 4x").latency_source, "");
  EXPECT_EQ(link("InfiniBand EDR 4x").year, 2014);
  for (const NominalLink& one : nominal_links()) {
    const bool is_network = one.family == "InfiniBand" || one.family == "Ethernet";
    EXPECT_EQ(one.year > 0, is_network) << one.name;
    EXPECT_EQ(one.latency_seconds > 0, one.latency_source != "") << one.name;
  }
}

TEST(Nominal, JsonHoldsTheSameLinks) {
  const auto json = base::parse_json(nominal_json());
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  ASSERT_EQ(json->size(), nominal_links().size() + direct_paths().size());
  EXPECT_EQ(json->back()["name"], "GPUDirect Async");
  EXPECT_EQ((*json)[0]["name"], "PCIe 3 x1");
  EXPECT_EQ((*json)[0]["rate"], "8 GT/s x 1 x 128/130");
}

}  // namespace
}  // namespace hanji::topology
