#include "hanji/report/device_table.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(DeviceTable, SaysWhatRatesMeanForAStep) {
  const auto devices = plan::devices_named("h100").or_throw();
  ASSERT_EQ(devices.size(), 1U);
  const DeviceMeaning meaning = meaning_of(devices[0]);
  EXPECT_NEAR(meaning.ridge, 794.5 / 3.35, 1e-9);
  // At n = 3 x ridge, 2 n^3 operations at 794.5 TF/s take as long as 3 n^2 elements of two bytes.
  const double n = meaning.square;
  EXPECT_NEAR(2 * n * n * n / 794.5e12, 6 * n * n / 3.35e12, 1e-12);
  EXPECT_DOUBLE_EQ(meaning.parameters, 5e9);
  EXPECT_NEAR(meaning.memory_seconds, 80.0 / 3350, 1e-12);
  // Of T tokens: 4 T operations and 4 bytes for each parameter take equally long.
  EXPECT_NEAR(4 * meaning.link_tokens / 794.5e12, 4 / 450e9, 1e-18);
  EXPECT_NEAR(4 * meaning.network_tokens / 794.5e12, 4 / 50e9, 1e-18);
  EXPECT_THAT(device_table(devices),
              AllOf(HasSubstr("NVLink 4"), HasSubstr("450 GB/s"), HasSubstr("PCIe 5 x16"),
                    HasSubstr("989 TF/s"), HasSubstr("237"), HasSubstr("read 2026-08")));
}

TEST(DeviceTable, ANameWithoutMemoryShowsAllOfThem) {
  const auto devices = plan::devices_named("a100").or_throw();
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_THAT(device_table(devices), AllOf(HasSubstr("a100-40"), HasSubstr("a100-80"),
                                           HasSubstr("1555 GB/s"), HasSubstr("2000 GB/s")));
}

TEST(DeviceTable, WhatIsNotKnownIsLeftOutAndNullInJson) {
  const auto devices = plan::devices_named("mi355x").or_throw();
  EXPECT_THAT(device_table(devices), Not(HasSubstr("network, one way")));
  const base::Json json = base::Json::parse(device_json(devices));
  EXPECT_TRUE(json[0]["links"]["network"]["bytes_per_second"].is_null());
  EXPECT_TRUE(json[0]["step"]["tokens_that_hide_all_reduce"]["network"].is_null());
  EXPECT_EQ(json[0]["rates"][0]["dtype"], "fp8");
}

}  // namespace
}  // namespace hanji::report
