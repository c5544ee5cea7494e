#include "hanji/topology/place.h"

#include <gmock/gmock.h>
#include <sched.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using testing::StartsWith;

// The first CPU that this test may use, and so one that place_of_caller() asks about.
int any_cpu() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mask)) ++cpu;
  return cpu;
}

void put(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  ASSERT_TRUE(base::write_file_atomic(file, text).ok());
}

// A host whose CPU has these parts.
void make_host(const std::filesystem::path& root, const std::string& boot, int cpu,
               const std::string& package) {
  put(root / "proc/sys/kernel/random/boot_id", boot + "\n");
  const auto folder = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
  put(folder / "topology/physical_package_id", package + "\n");
  put(folder / "cache/index0/shared_cpu_list", std::to_string(cpu) + "\n");
  put(folder / "cache/index1/shared_cpu_list", "0-7\n");
  std::filesystem::create_directories(folder / "node3");
}

class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    sched_setaffinity(0, sizeof mask, &mask);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof before_, &before_); }
  const int cpu = any_cpu();

 private:
  cpu_set_t before_{};
};

TEST(PlaceOfCaller, NamesHostPackageNodeAndCache) {
  const test::TemporaryFolder here, there;
  const OneCpu one;
  make_host(here.path(), "a", one.cpu, "1");
  make_host(there.path(), "b", one.cpu, "1");
  const RankPath path = place_of_caller(here.path());
  EXPECT_THAT(path, ElementsAre(StartsWith("host:"), "package:1", "memory:3", "cache:0-7"));
  EXPECT_EQ(path, place_of_caller(here.path()));
  EXPECT_NE(path[0], place_of_caller(there.path())[0]);
  EXPECT_EQ(path_from_line(to_line(path)), path);
}

TEST(PlaceOfCaller, EndsWhereNothingIsKnown) {
  const test::TemporaryFolder empty;
  EXPECT_THAT(place_of_caller(empty.path()), SizeIs(1));
  EXPECT_THAT(place_of_caller()[0], StartsWith("host:"));  // of whatever machine this is
}

}  // namespace
}  // namespace hanji::topology
