#include "hanji/layout/server.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "hanji/layout/unit.h"

namespace hanji::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kCount = 64 * 1'000'000;
constexpr int64_t kElementBytes = 4;

/// The ranks 0..n-1 compute and serve, n..n+k-1 only serve.
ServerShares shares_of(int n, int k) {
  std::vector<int> servers, workers;
  for (int rank = 0; rank < n + k; ++rank) servers.push_back(rank);
  for (int rank = 0; rank < n; ++rank) workers.push_back(rank);
  return server_shares(kCount, n + k, servers, workers).or_throw();
}

TEST(ServerShares, WithoutRolesEveryRankIsBoth) {
  const ServerShares shares = server_shares(kCount, 4).or_throw();
  EXPECT_THAT(shares.servers, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(shares.workers, shares.servers);
  for (const Range& range : shares.ranges) EXPECT_EQ(range.size(), kCount / 4);
}

TEST(ServerShares, RanksThatAreNoServersCompute) {
  const ServerShares shares = server_shares(1000, 4, {3, 1}).or_throw();
  EXPECT_THAT(shares.servers, ElementsAre(1, 3));
  EXPECT_THAT(shares.workers, ElementsAre(0, 2));
  EXPECT_THAT(shares.ranges, ElementsAre(Range{0, 512}, Range{512, 1000}));
  EXPECT_TRUE(shares.range_of(0).empty());
  EXPECT_EQ(shares.server_index(3), 1);
}

TEST(ServerShares, CoverEverythingOnce) {
  for (int n = 1; n <= 8; ++n) {
    for (int k = 0; k <= n + 1; ++k) {
      const ServerShares shares = shares_of(n, k);
      int64_t next = 0;
      for (const Range& range : shares.ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.begin % 64, 0);
        next = range.end;
      }
      EXPECT_EQ(next, kCount);
    }
  }
}

TEST(ServerShares, RefuseRolesThatMakeNoSense) {
  const auto refusal = [](const Result<ServerShares>& result) {
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal(server_shares(10, 2, {2})), HasSubstr("servers has rank 2 outside"));
  EXPECT_THAT(refusal(server_shares(10, 2, {0}, {1, 1})), HasSubstr("workers has rank 1 twice"));
  EXPECT_THAT(refusal(server_shares(10, 3, {0}, {1})), HasSubstr("rank 2 of 3 is neither"));
  EXPECT_THAT(refusal(server_shares(0, 3)), HasSubstr("at least 1"));
}

TEST(ServerTraffic, OfServersThatOnlyServe) {
  for (int n = 1; n <= 8; ++n) {
    for (int k = 1; k <= 4; ++k) {
      std::vector<int> servers;
      for (int s = 0; s < k; ++s) servers.push_back(n + s);
      const ServerShares shares = server_shares(kCount, n + k, servers).or_throw();
      const ServerTraffic traffic = server_traffic(shares, kElementBytes);
      const int64_t bytes = kCount * kElementBytes;
      EXPECT_EQ(traffic.links[0], (ServerTraffic::Link{bytes, bytes})) << "a worker, once each way";
      EXPECT_EQ(traffic.network(), 2 * n * bytes);
      // n workers' gradients meet in a server of a k-th; ranges are cut at 256 bytes.
      EXPECT_NEAR(static_cast<double>(traffic.busiest()),
                  std::max(1.0, static_cast<double>(n) / k) * static_cast<double>(bytes), n * 256.);
    }
  }
}

TEST(ServerTraffic, OfServersThatComputeIsThatOfAnAllReduce) {
  for (const int n : {1, 2, 4, 5, 8}) {
    const ServerTraffic server = server_traffic(shares_of(n, 0), kElementBytes);
    const ServerTraffic ring = all_reduce_traffic(kCount, n, kElementBytes);
    EXPECT_EQ(server.links, ring.links) << n;
    EXPECT_EQ(server.network(), ring.network());
  }
}

TEST(ServerTraffic, TheBusiestLinkTakesTheTimeOfTheFormula) {
  for (int n = 1; n <= 8; ++n) {
    for (int k = 0; k <= n + 2; ++k) {
      const ServerTraffic traffic = server_traffic(shares_of(n, k), kElementBytes);
      const double bytes = kCount * kElementBytes;
      // Each boundary is rounded up by at most 63 elements, and a link sees it up to n times.
      EXPECT_NEAR(static_cast<double>(traffic.busiest()), server_seconds(n, k, bytes, 1.0),
                  256. * n)
          << n << " workers, " << k << " servers beside";
    }
  }
}

TEST(ServerTraffic, EveryPartOfAWorkerIsPushedAndWeightsComeOnce) {
  const ServerShares shares = server_shares(640, 3, {2}).or_throw();
  const std::vector<int> parts{3, 1};
  const ServerTraffic traffic = server_traffic(shares, 4, parts);
  EXPECT_EQ(traffic.links[0], (ServerTraffic::Link{3 * 2560, 2560}));
  EXPECT_EQ(traffic.links[1], (ServerTraffic::Link{2560, 2560}));
  EXPECT_EQ(traffic.links[2], (ServerTraffic::Link{2 * 2560, 4 * 2560}));
}

TEST(CutAtBlocks, RangesEndAtParametersOrWholePartialSums) {
  const std::vector<int64_t> sizes = {5000, 3, 700, 9000};
  const FlatLayout flat = flat_layout(sizes);
  const ServerShares shares = cut_at_blocks(server_shares(flat.count, 3).or_throw(), flat);
  int64_t begin = 0;
  for (const Range& range : shares.ranges) {
    EXPECT_EQ(range.begin, begin) << "ranges cover everything once";
    begin = range.end;
    if (range.end == flat.count) continue;
    const auto after = std::upper_bound(flat.offsets.begin(), flat.offsets.end(), range.end);
    EXPECT_EQ((range.end - *std::prev(after)) % kShardBlock, 0);
  }
  EXPECT_EQ(begin, flat.count);
}

TEST(ServerSeconds, HasItsTwoLimits) {
  EXPECT_DOUBLE_EQ(server_seconds(4, 0, 100, 10), 2 * 3. / 4 * 100 / 10);
  EXPECT_DOUBLE_EQ(server_seconds(4, 4, 100, 10), 10);
  EXPECT_DOUBLE_EQ(server_seconds(4, 9, 100, 10), 10);
  EXPECT_DOUBLE_EQ(server_seconds(1, 0, 100, 10), 0);
}

TEST(ServerMemory, IsTheWorkersCopyAndTheServersRange) {
  const ServerShares apart = server_shares(kCount, 3, {2}).or_throw();
  EXPECT_EQ(server_memory(apart, 0, 4, 8), (ServerMemory{4 * kCount, 4 * kCount, 0}));
  EXPECT_EQ(server_memory(apart, 2, 4, 8), (ServerMemory{4 * kCount, 4 * kCount, 8 * kCount}));
  const ServerShares both = server_shares(kCount, 4).or_throw();
  EXPECT_EQ(server_memory(both, 1, 4, 8, 3), (ServerMemory{4 * kCount, 13 * kCount, 2 * kCount}));
}

}  // namespace
}  // namespace hanji::layout
