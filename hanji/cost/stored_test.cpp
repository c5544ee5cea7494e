#include "hanji/cost/stored.h"

#include <gmock/gmock.h>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::cost {
namespace {

using testing::HasSubstr;

topology::Machine two_nodes() {
  topology::Machine machine;
  machine.cpu_model = "a processor";
  machine.usable_cores = 4;
  machine.core_cpus = {{0}, {1}, {2}, {3}};
  machine.numa_nodes = {{0, 1 << 30, {0, 1}}, {1, 1 << 30, {2, 3}}};
  return machine;
}

StoredCosts some(int ranks) {
  StoredCosts stored;
  stored.stamp = stamp_of(two_nodes(), ranks);
  stored.fitted_at = base::wall_ns() / 1'000'000'000;
  stored.fit_seconds = 0.25;
  stored.costs.ranks = ranks;
  stored.costs.sync_seconds = 1e-6;
  return stored;
}

TEST(PlacementClass, SaysHowRanksLieToEachOther) {
  topology::Machine one_node = two_nodes();
  one_node.numa_nodes = {{0, 1 << 30, {0, 1, 2, 3}}};
  EXPECT_EQ(placement_class(one_node, 2), "near");
  EXPECT_EQ(placement_class(two_nodes(), 2), "far");  // two cores each
  EXPECT_EQ(placement_class(two_nodes(), 5), "shared");
}

TEST(StoredCosts, GoThroughJsonUnchanged) {
  const auto back = stored_from_json(to_json(some(2)));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, some(2));
  StoredCosts loaded = some(2);
  loaded.load = 0.25;
  loaded.fits = 2;
  EXPECT_EQ(stored_from_json(to_json(loaded)).or_throw(), loaded);
  EXPECT_EQ(stored_from_json("{}").status().code(), Code::kCorrupt);
}

TEST(StoredCosts, SayHowLongCallsWereTimed) {
  StoredCosts stored = some(2);
  stored.fitted_at = 1'700'000'000;
  EXPECT_EQ(describe(stored),
            "costs timed on 2023-11-14 for 0.25 s; `hanji bench --fit --ranks 2` takes longer and "
            "is closer");
  stored.fit_seconds = kThoroughSeconds;
  EXPECT_EQ(describe(stored), "costs timed on 2023-11-14 for 7 s");
  stored.load = 0.4;
  EXPECT_THAT(describe(stored), HasSubstr("; other processes used 40 % of the CPUs meanwhile"));
}

TEST(StoredCosts, AreStaleWhereTheStampDiffersOrTimeHasPassed) {
  const StoredCosts stored = some(2);
  const int64_t now = stored.fitted_at;
  EXPECT_EQ(why_stale(stored, stored.stamp, now), "");
  Stamp other = stored.stamp;
  other.kernel = "5.10";
  EXPECT_THAT(why_stale(stored, other, now), HasSubstr("kernel was"));
  other = stored.stamp;
  other.cores = 2;
  EXPECT_THAT(why_stale(stored, other, now), HasSubstr("usable cores were 4 and are 2"));
  other = stored.stamp;
  other.placement = "shared";
  EXPECT_THAT(why_stale(stored, other, now), HasSubstr("placement"));
  EXPECT_THAT(why_stale(stored, stored.stamp, now + 31 * 24 * 3600), HasSubstr("31 days old"));
  EXPECT_THAT(why_stale(stored, stored.stamp, now - 3 * 24 * 3600), HasSubstr("future"));
}

TEST(UseFitted, TakesFreshCostsOrSaysWhyNot) {
  const test::TemporaryFolder folder;
  Rates rates;
  EXPECT_THAT(use_fitted(rates, folder.path(), two_nodes(), 2),
              HasSubstr("hanji bench --fit --ranks 2"));
  ASSERT_TRUE(save_costs(folder.path(), some(2)).ok());
  EXPECT_EQ(use_fitted(rates, folder.path(), two_nodes(), 2), "");
  ASSERT_TRUE(rates.fitted.has_value());
  EXPECT_EQ(rates.fitted->sync_seconds, 1e-6);

  Rates others;
  topology::Machine changed = two_nodes();
  changed.cpu_model = "another processor";
  EXPECT_THAT(use_fitted(others, folder.path(), changed, 2), HasSubstr("stale"));
  EXPECT_FALSE(others.fitted.has_value());
  ASSERT_TRUE(base::write_file_atomic(costs_file(folder.path(), 2), "nonsense").ok());
  EXPECT_NE(use_fitted(others, folder.path(), two_nodes(), 2), "");
}

}  // namespace
}  // namespace hanji::cost
