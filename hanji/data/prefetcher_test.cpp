#include "hanji/data/prefetcher.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/data/batch.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;

int64_t num_threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// Sample i of epoch e is (e, i); some of them fail.
class NumberedSource final : public Source {
 public:
  explicit NumberedSource(int64_t count) : count_(count) {}

  int64_t count(Part part) const override { return part == Part::kTrain ? count_ : 0; }
  SampleShape shape() const override { return {.inputs = {2}, .targets = {}}; }
  Status read(Part, int64_t index, layers::Batch& batch, int64_t row) const override {
    return read_in_epoch(-1, index, batch, row);
  }
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override {
    ++num_reads;
    if (index == throws_at) throw std::runtime_error("worn out");
    if (index >= fails_from) return base::corrupt("sample " + std::to_string(index));
    std::this_thread::yield();
    auto* inputs = batch.inputs.mutable_data_ptr<int64_t>() + 2 * row;
    inputs[0] = epoch;
    inputs[1] = index;
    batch.targets.mutable_data_ptr<int64_t>()[row] = index;
    return {};
  }
  uint64_t checksum() const override { return 0; }

  int64_t fails_from = INT64_MAX;
  int64_t throws_at = -1;
  mutable std::atomic<int> num_reads = 0;

 private:
  int64_t count_;
};

Loader loader_of_numbers(int64_t num_samples, layout::Range share,
                         plan::SampleOrder order = plan::SampleOrder::kRandom) {
  return Loader::create({.seed = 4,
                         .num_samples = num_samples,
                         .global_batch = 24,
                         .share = share,
                         .micro_batch = 5,
                         .order = order})
      .or_throw();
}

TEST(Prefetcher, GivesTheBatchesOfReadBatchForAnyNumberOfThreadsAndStepsAhead) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {3, 20});
  for (const auto& [threads, ahead] : std::vector<std::pair<int, int64_t>>{
           {0, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 0}, {3, 5}, {8, 1}, {2, 20}}) {
    Prefetcher prefetcher(source, loader, threads, 9, ahead);
    for (int64_t step = 0; step < 9; ++step) {
      for (const layout::Range positions : loader.micro_batches()) {
        const layers::Batch& found = prefetcher.read(step, positions);
        layers::Batch expected;
        read_batch(source, loader, step, positions, expected);
        ASSERT_TRUE(at::equal(found.inputs, expected.inputs))
            << threads << " " << ahead << " " << step;
        ASSERT_TRUE(at::equal(found.targets, expected.targets));
        EXPECT_EQ(found.positions, positions);
        EXPECT_EQ(found.num_valid, expected.num_valid);
      }
    }
  }
}

TEST(Prefetcher, BeginsAtAnyStepAndGoesBack) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  Prefetcher prefetcher(source, loader, 2, 100);
  for (const int64_t step : {7, 8, 3, 4, 90, 7}) {
    const layers::Batch& found = prefetcher.read(step, loader.micro_batches()[2]);
    layers::Batch expected;
    read_batch(source, loader, step, loader.micro_batches()[2], expected);
    EXPECT_TRUE(at::equal(found.inputs, expected.inputs)) << step;
  }
}

TEST(Prefetcher, ReadsNothingBehindTheEnd) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  {
    Prefetcher prefetcher(source, loader, 2, 2);
    prefetcher.read(0, loader.micro_batches()[0]);
    prefetcher.read(1, loader.micro_batches()[0]);
  }
  EXPECT_EQ(source.num_reads, 48);
}

TEST(Prefetcher, ThrowsTheErrorOfTheFirstSampleThatFailed) {
  NumberedSource source(24);
  source.fails_from = 11;
  const Loader loader = loader_of_numbers(24, {0, 24}, plan::SampleOrder::kSequential);
  for (const int threads : {0, 1, 4}) {
    for (int round = 0; round < 20; ++round) {
      Prefetcher prefetcher(source, loader, threads, 5);
      try {
        prefetcher.read(0, loader.micro_batches()[0]);
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kCorrupt);
        EXPECT_STREQ(error.what(), "sample 11");
      }
    }
  }
}

TEST(Prefetcher, AnExceptionOfASourceReachesTheCallerWithItsSample) {
  NumberedSource source(24);
  source.throws_at = 5;
  const Loader loader = loader_of_numbers(24, {0, 24});
  Prefetcher prefetcher(source, loader, 3, 5);
  EXPECT_THAT([&] { prefetcher.read(0, loader.micro_batches()[0]); },
              testing::ThrowsMessage<Error>(HasSubstr("sample 5: std::runtime_error: worn out")));
}

TEST(Prefetcher, NoThreadOutlivesIt) {
  const NumberedSource source(5000);
  const Loader loader = loader_of_numbers(5000, {0, 24});
  const int64_t before = num_threads_now();
  for (int round = 0; round < 10; ++round) {
    Prefetcher prefetcher(source, loader, 4, 100);
    if (round % 2 == 0) prefetcher.read(0, loader.micro_batches()[0]);
    EXPECT_EQ(num_threads_now(), before + 4);
  }
  EXPECT_EQ(num_threads_now(), before);
}

TEST(Prefetcher, HoldsTheBatchesOfAStepAndOfThoseAhead) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  for (const int64_t ahead : {0, 1, 4}) {
    Prefetcher prefetcher(source, loader, 1, 100, ahead);
    prefetcher.read(0, loader.micro_batches()[0]);
    EXPECT_EQ(prefetcher.bytes(), (1 + ahead) * 24 * 3 * 8);
  }
}

TEST(Prefetcher, HoldsOneStepWithoutThreads) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  Prefetcher prefetcher(source, loader, 0, 100, 4);
  const auto data_of = [&](int64_t step) {
    return prefetcher.read(step, loader.micro_batches()[0]).inputs.const_data_ptr();
  };
  const void* first = data_of(0);
  EXPECT_EQ(data_of(1), first);
  EXPECT_EQ(prefetcher.bytes(), 24 * 3 * 8);
}

TEST(Prefetcher, CountsTheSamplesAndTheTimeOfItsThreads) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  for (const int threads : {0, 3}) {
    Prefetcher prefetcher(source, loader, threads, 5);
    EXPECT_EQ(prefetcher.reading_time().samples, 0);
    const int64_t begun = base::now_ns();
    for (int64_t step = 0; step < 5; ++step) prefetcher.read(step, loader.micro_batches()[0]);
    const double passed = static_cast<double>(base::now_ns() - begun) * 1e-9;
    EXPECT_EQ(prefetcher.reading_time().samples, 5 * 24);
    EXPECT_GT(prefetcher.reading_time().seconds, 0);
    EXPECT_LE(prefetcher.reading_time().seconds, (threads + 1) * passed);
  }
}

TEST(Prefetcher, ThreadsRestBetweenStepsWithoutStepsAhead) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  Prefetcher prefetcher(source, loader, 3, 100, 0);
  for (int64_t step = 0; step < 5; ++step) {
    prefetcher.read(step, loader.micro_batches()[0]);
    EXPECT_EQ(source.num_reads, 24 * (step + 1));
  }
}

TEST(Prefetcher, ReadsAsManyStepsAheadAsItWasTold) {
  const NumberedSource source(50);
  const Loader loader = loader_of_numbers(50, {0, 24});
  Prefetcher prefetcher(source, loader, 2, 100, 3);
  prefetcher.read(0, loader.micro_batches()[0]);
  while (source.num_reads < 4 * 24) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) std::this_thread::yield();
  EXPECT_EQ(source.num_reads, 4 * 24) << "and no further";
}

}  // namespace
}  // namespace hanji::data
