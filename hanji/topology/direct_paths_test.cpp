#include "hanji/topology/direct_paths.h"

#include <gmock/gmock.h>

#include "hanji/base/text.h"

namespace hanji::topology {
namespace {

using testing::HasSubstr;

TEST(DirectPaths, EachSaysWhatItIsItsPathItsBoundAndItsSource) {
  const std::string text = direct_paths_text();
  for (const char* name : {"P2P", "RDMA", "Storage", "Async"}) {
    EXPECT_THAT(text, HasSubstr(std::string("GPUDirect ") + name + "\n  what "));
  }
  for (const DirectPath& one : direct_paths()) {
    for (const std::string& part : {one.what, one.path, one.without, one.bound, one.source}) {
      EXPECT_NE(part, "") << one.name;
    }
    EXPECT_THAT(one.source, HasSubstr("20")) << "a date";
  }
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80U) << line;
}

TEST(DirectPaths, BoundsAreTheRatesOfTheLinks) {
  EXPECT_THAT(direct_paths()[2].bound, HasSubstr("PCIe 5 x4 15.8 GB/s"));
  EXPECT_THAT(direct_paths()[2].bound, HasSubstr("PCIe 5 x16 63.0 GB/s"));
}

}  // namespace
}  // namespace hanji::topology
