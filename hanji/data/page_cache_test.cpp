#include "hanji/data/page_cache.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint64_t kPage = 8192;
constexpr uint64_t kBegin = 4096;

/// Memory of zeros that begins anywhere.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes) + 64) {}
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64);
  }

 private:
  std::vector<std::byte> bytes_;
};

class PageCacheTest : public testing::Test {
 protected:
  /// Page p is full of p, of samples of which two are in each page.
  void write_pages(uint64_t num_pages) {
    std::ofstream file(path_, std::ios::binary);
    file << std::string(kBegin, 'h');
    for (uint64_t page = 0; page < num_pages; ++page) {
      file << std::string(kPage, static_cast<char>(page));
    }
    options_ = {.path = path_,
                .begin = kBegin,
                .page_bytes = kPage,
                .num_pages = num_pages,
                .most_pages = 6,
                .deadline = std::chrono::seconds(60)};
    pages_.resize(2 * num_pages);
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<uint32_t>(i / 2);
  }

  Result<std::shared_ptr<PageCache>> open_cache() const { return PageCache::open(options_); }

  Loader loader_of(plan::SampleOrder order, int64_t global_batch, layout::Range share) const {
    return Loader::create({.seed = 3,
                           .num_samples = std::ssize(pages_),
                           .global_batch = global_batch,
                           .share = share,
                           .micro_batch = global_batch,
                           .order = order,
                           .pages = std::make_shared<const std::vector<uint32_t>>(pages_),
                           .open_pages = 4})
        .or_throw();
  }

  /// Reads a share of some steps as a rank does.
  void read_steps(PageCache& cache, const Loader& loader, layout::Range steps) const {
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      const layout::Range share = loader.options().share;
      for (int64_t position = share.begin; position < share.end; ++position) {
        const uint32_t page = pages_[static_cast<size_t>(loader.sample(step, position))];
        const CachedPage found = cache.page(page).or_throw();
        ASSERT_EQ(found.bytes.size(), kPage);
        ASSERT_EQ(found.bytes.front(), std::byte(page)) << step;
        ASSERT_EQ(found.bytes.back(), std::byte(page));
      }
      cache.finish_step(step);
    }
  }

  const test::TemporaryFolder folder_;
  const fs::path path_ = folder_.path() / "pages";
  PageCacheOptions options_;
  std::vector<uint32_t> pages_;
};

#define OPEN_OR_SKIP(name)                                                   \
  const auto opened_##name = open_cache();                                   \
  if (!opened_##name.ok()) GTEST_SKIP() << opened_##name.status().message(); \
  PageCache& name = **opened_##name

TEST_F(PageCacheTest, GivesEveryPageOfAScheduleFromFewerSlotsThanPages) {
  write_pages(50);
  for (const auto order : {plan::SampleOrder::kQuasi, plan::SampleOrder::kSequential}) {
    OPEN_OR_SKIP(cache);
    SharedMemory memory(cache.memory_bytes(1));
    cache.attach(memory.data(), 0, 1);
    const Loader loader = loader_of(order, 4, {0, 4});
    cache.start_reading(loader, pages_, {3, 60}, 1);
    read_steps(cache, loader, {3, 60});
    cache.stop();
    EXPECT_FALSE(cache.is_attached());
  }
}

TEST_F(PageCacheTest, AnEpochInPagesReadsEachPageOnce) {
  write_pages(40);
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  const Loader loader = loader_of(plan::SampleOrder::kQuasi, 8, {0, 8});
  cache.start_reading(loader, pages_, {0, 10}, 1);
  read_steps(cache, loader, {0, 10});
  EXPECT_EQ(cache.bytes_read(), 40 * static_cast<int64_t>(kPage));
}

TEST_F(PageCacheTest, TimesPagesAsTheyAreReadAndChecked) {
  write_pages(20);
  std::set<uint64_t> checked;
  options_.is_good = [&](uint64_t page, std::span<const std::byte> bytes) {
    checked.insert(page);
    return bytes.size() == kPage && bytes.front() == std::byte(page);
  };
  OPEN_OR_SKIP(cache);
  EXPECT_GT(cache.seconds_per_page().or_throw(), 0);
  EXPECT_EQ(std::ssize(checked), PageCache::kTimedPages);
  fs::resize_file(path_, kBegin + kPage);
  EXPECT_FALSE(cache.seconds_per_page().ok());
}

TEST_F(PageCacheTest, RanksShareThePagesThatOneOfThemReads) {
  write_pages(60);
  OPEN_OR_SKIP(first);
  OPEN_OR_SKIP(second);
  SharedMemory memory(first.memory_bytes(2));
  first.attach(memory.data(), 0, 2);
  second.attach(memory.data(), 1, 2);
  const Loader whole = loader_of(plan::SampleOrder::kQuasi, 5, {0, 5});
  first.start_reading(whole, pages_, {0, 70}, 1);
  const Loader shares[] = {loader_of(plan::SampleOrder::kQuasi, 5, {0, 2}),
                           loader_of(plan::SampleOrder::kQuasi, 5, {2, 5})};
  for (int64_t step = 0; step < 70; ++step) {  // as collectives keep ranks together
    std::jthread other([&] { read_steps(second, shares[1], {step, step + 1}); });
    read_steps(first, shares[0], {step, step + 1});
  }
  EXPECT_EQ(second.bytes_read(), 0);
  first.stop();
}

TEST_F(PageCacheTest, ADamagedPageIsMarked) {
  write_pages(8);
  options_.is_good = [](uint64_t page, std::span<const std::byte>) { return page != 5; };
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  cache.start_reading(loader_of(plan::SampleOrder::kSequential, 8, {0, 8}), pages_, {0, 2}, 1);
  EXPECT_TRUE(cache.page(3).or_throw().is_good);
  cache.finish_step(0);
  EXPECT_FALSE(cache.page(5).or_throw().is_good);
}

TEST_F(PageCacheTest, AFileThatWasCutIsAnErrorOfEveryReader) {
  write_pages(8);
  ASSERT_EQ(::truncate(path_.c_str(), kBegin + 2 * kPage), 0);
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  cache.start_reading(loader_of(plan::SampleOrder::kSequential, 8, {0, 8}), pages_, {0, 2}, 1);
  const auto found = cache.page(3);
  EXPECT_EQ(found.status().code(), Code::kCorrupt);
  EXPECT_THAT(found.status().message(), HasSubstr("bytes; the file was cut"));
}

TEST_F(PageCacheTest, APageThatNoStepNeedsIsATimeout) {
  write_pages(8);
  options_.deadline = std::chrono::milliseconds(1);
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  cache.start_reading(loader_of(plan::SampleOrder::kSequential, 2, {0, 2}), pages_, {0, 1}, 1);
  EXPECT_EQ(cache.page(7).status().code(), Code::kTimeout);
}

TEST_F(PageCacheTest, EndsWhileItsThreadWaitsForRanks) {
  write_pages(30);
  for (int round = 0; round < 5; ++round) {
    OPEN_OR_SKIP(cache);
    SharedMemory memory(cache.memory_bytes(1));
    cache.attach(memory.data(), 0, 1);
    cache.start_reading(loader_of(plan::SampleOrder::kSequential, 4, {0, 4}), pages_, {0, 1000}, 1);
    EXPECT_TRUE(cache.page(0).ok());
    cache.stop();
  }
}

TEST_F(PageCacheTest, CancellingEndsAWait) {
  write_pages(8);
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  std::jthread canceller([&] { cache.cancel(); });
  EXPECT_EQ(cache.page(1).status().code(), Code::kCancelled) << "nobody reads";
}

TEST_F(PageCacheTest, RefusesABudgetThatStepsUnderWayExceed) {
  write_pages(40);
  const auto check = [&](plan::SampleOrder order, int64_t most_pages, int64_t steps_ahead = 1) {
    return check_page_budget(loader_of(order, 8, {0, 8}), pages_, {most_pages, steps_ahead},
                             {0, 100});
  };
  // Three sequential steps of 8 samples are on 12 pages; without steps ahead, two are on 8.
  EXPECT_TRUE(check(plan::SampleOrder::kSequential, 12).ok());
  EXPECT_EQ(check(plan::SampleOrder::kSequential, 11).code(), Code::kInvalidArgument);
  EXPECT_TRUE(check(plan::SampleOrder::kSequential, 8, 0).ok());
  EXPECT_FALSE(check(plan::SampleOrder::kSequential, 7, 0).ok());
  EXPECT_FALSE(check(plan::SampleOrder::kSequential, 15, 2).ok());
  EXPECT_THAT(check(plan::SampleOrder::kRandom, 12).message(), HasSubstr("data.order = \"quasi\""));
  EXPECT_THAT(check(plan::SampleOrder::kSequential, 11).message(),
              HasSubstr("need 12 together; set data.pages = 12"));
}

TEST_F(PageCacheTest, ABudgetHoldsInEveryEpoch) {
  write_pages(40);
  const Loader loader = loader_of(plan::SampleOrder::kRandom, 8, {0, 8});
  const auto most_of = [&](layout::Range steps, int64_t together) {
    size_t most = 0;
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      std::set<uint32_t> pages;
      for (int64_t one = std::max(steps.begin, step - together + 1); one <= step; ++one) {
        for (int64_t j = 0; j < 8; ++j) pages.insert(pages_[size_t(loader.at(one, j).index)]);
      }
      most = std::max(most, pages.size());
    }
    return static_cast<int64_t>(most);
  };
  const layout::Range first{0, 10}, all{0, 300}, late{120, 300};
  ASSERT_LT(most_of(first, 3), most_of(all, 3)) << "later epochs need more";
  for (const layout::Range steps : {first, all, late}) {
    for (const int64_t ahead : {0, 1, 3}) {
      const int64_t most = most_of(steps, ahead + 2);
      EXPECT_TRUE(check_page_budget(loader, pages_, {most, ahead}, steps).ok());
      const Status less = check_page_budget(loader, pages_, {most - 1, ahead}, steps);
      EXPECT_THAT(less.message(), HasSubstr("data.pages = " + std::to_string(most)));
    }
  }
}

/// Ranks that read ahead look at pages which stay from an earlier step: none of them may give way.
TEST_F(PageCacheTest, APageOfAStepAheadStaysWhileTheReaderIsBehind) {
  write_pages(20);
  const Loader loader = loader_of(plan::SampleOrder::kRandom, 4, {0, 4});
  const auto pages_of = [&](int64_t step) {
    std::set<uint32_t> pages;
    for (int64_t j = 0; j < 4; ++j) pages.insert(pages_[size_t(loader.at(step, j).index)]);
    return pages;
  };
  options_.most_pages = 12;
  ASSERT_TRUE(check_page_budget(loader, pages_, {12, 1}, {0, 400}).ok());
  OPEN_OR_SKIP(cache);
  SharedMemory memory(cache.memory_bytes(1));
  cache.attach(memory.data(), 0, 1);
  cache.start_reading(loader, pages_, {0, 400}, 1);
  std::map<uint32_t, const std::byte*> held;
  for (int64_t step = 0; step + 1 < 400; ++step) {
    for (const uint32_t page : pages_of(step)) {
      const CachedPage found = cache.page(page).or_throw();
      ASSERT_EQ(found.bytes.front(), std::byte(page));
      if (held.contains(page)) EXPECT_EQ(found.bytes.data(), held[page]) << step;
    }
    held.clear();
    for (const uint32_t page : pages_of(step + 1)) {
      held[page] = cache.page(page).or_throw().bytes.data();
    }
    cache.finish_step(step);
  }
  cache.stop();
}

TEST_F(PageCacheTest, RefusesWhatItCannotReadWithTheReason) {
  write_pages(8);
  options_.begin = 100;
  EXPECT_FALSE(open_cache().ok()) << "no block begins there";
  options_.begin = kBegin;
  options_.path = folder_.path() / "none";
  EXPECT_EQ(open_cache().status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::data
