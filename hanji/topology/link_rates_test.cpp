#include "hanji/topology/link_rates.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

class LinkRates : public testing::Test {
 protected:
  ~LinkRates() override { fs::remove_all(root_); }
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void write_pcie(const std::string& which, const std::string& speed, const std::string& width) {
    const fs::path device = "sys/bus/pci/devices/0000:01:00.0";
    write(device / (which + "_link_speed"), speed);
    write(device / (which + "_link_width"), width);
  }
  LinkRate pcie() { return read_pcie_rate(root_, "0000:01:00.0"); }
  LinkRate infiniband(const std::string& line) {
    write("sys/class/infiniband/mlx5_0/ports/1/rate", line);
    return read_infiniband_rate(root_, "mlx5_0", "1");
  }

  fs::path root_ = testing::TempDir() + "/link_rates." + std::to_string(::getpid());
};

TEST_F(LinkRates, PcieFromSpeedAndWidth) {
  write_pcie("current", "16.0 GT/s PCIe", "8");
  EXPECT_EQ(pcie().label, "PCIe 4 x8");
  EXPECT_NEAR(pcie().bytes_per_second, 15.754e9, 1e6);
}

TEST_F(LinkRates, ALinkAtRestCountsAtItsBest) {
  write_pcie("current", "2.5 GT/s PCIe", "16");
  write_pcie("max", "32.0 GT/s PCIe", "16");
  EXPECT_EQ(pcie().label, "PCIe 5 x16 (now PCIe 1 x16)");
  EXPECT_NEAR(pcie().bytes_per_second, 63.015e9, 1e6);
}

TEST_F(LinkRates, WhatTheKernelDoesNotKnowIsUnknown) {
  EXPECT_THAT(pcie().unknown, HasSubstr("no link speed"));
  write_pcie("current", "Unknown", "0");
  EXPECT_EQ(pcie().bytes_per_second, 0);
  write_pcie("current", "7 GT/s", "16");
  EXPECT_EQ(pcie().bytes_per_second, 0);
  EXPECT_NE(pcie().unknown, "");
}

TEST_F(LinkRates, EthernetInMegabits) {
  write("sys/class/net/eth0/speed", "25000");
  EXPECT_EQ(read_net_rate(root_, "eth0").label, "25 Gbit/s");
  EXPECT_EQ(read_net_rate(root_, "eth0").bytes_per_second, 3.125e9);
  write("sys/class/net/eth0/speed", "-1");
  EXPECT_THAT(read_net_rate(root_, "eth0").unknown, HasSubstr("driver gives no speed"));
  write("sys/class/net/eth0/operstate", "down");
  EXPECT_THAT(read_net_rate(root_, "eth0").unknown, HasSubstr("down"));
}

TEST_F(LinkRates, InfinibandAfterItsCoding) {
  EXPECT_EQ(infiniband("40 Gb/sec (4X QDR)").bytes_per_second, 4e9);
  EXPECT_NEAR(infiniband("56 Gb/sec (4X FDR)").bytes_per_second, 6.788e9, 1e6);
  EXPECT_EQ(infiniband("100 Gb/sec (4X EDR)").bytes_per_second, 12.5e9);
  EXPECT_EQ(infiniband("400 Gb/sec (4X NDR)").bytes_per_second, 50e9);
  EXPECT_NE(infiniband("").unknown, "");
}

TEST_F(LinkRates, NamesInOrderAndNoneWithoutTheClass) {
  write("sys/class/net/lo/speed", "1");
  write("sys/class/net/eth0/speed", "1");
  EXPECT_THAT(names_in_class(root_, "net"), ElementsAre("eth0", "lo"));
  EXPECT_THAT(names_in_class(root_, "infiniband"), IsEmpty());
}

}  // namespace
}  // namespace hanji::topology
