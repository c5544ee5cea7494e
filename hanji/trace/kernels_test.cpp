#include "hanji/trace/kernels.h"

#include <gmock/gmock.h>

#include "hanji/trace/timeline_rows.h"

namespace hanji::trace {
namespace {

constexpr NameId kForward = 1, kBackward = 2, kCall = 3;

/// An event of the main lane, in microseconds.
Event event(Category category, int64_t start_us, int64_t end_us, NameId name = 0) {
  return {.start_ns = start_us * 1000,
          .end_ns = end_us * 1000,
          .name = name,
          .category = category,
          .step = 7};
}

/// "1: 10-30" for a kernel of name 1, "10-30" for one without.
std::vector<std::string> of(const std::vector<Kernel>& kernels, Stream stream) {
  std::vector<std::string> texts;
  for (const Kernel& kernel : kernels) {
    if (kernel.stream != stream) continue;
    const std::string name = kernel.name == 0 ? "" : std::to_string(kernel.name) + ": ";
    texts.push_back(name + std::to_string(kernel.start_us) + "-" + std::to_string(kernel.end_us));
    EXPECT_EQ(kernel.step, 7);
  }
  return texts;
}

TEST(Kernels, EndWhereWaitsBeginAndGoOnBehindThem) {
  const auto kernels =
      kernels_of({event(Category::kData, 0, 10), event(Category::kSkew, 30, 40),
                  event(Category::kTransfer, 40, 45, kCall),
                  event(Category::kCompute, 20, 60, kForward), event(Category::kStep, 0, 100)},
                 true);
  EXPECT_THAT(of(kernels, Stream::kCompute),
              testing::ElementsAre("10-20", "1: 20-30", "1: 45-60", "60-100"));
  EXPECT_THAT(of(kernels, Stream::kTransfer), testing::ElementsAre("3: 40-45"));
}

TEST(Kernels, TransferOfAnotherThreadIsBesideWhatIsComputed) {
  Event hidden = event(Category::kTransfer, 20, 50, kCall);
  hidden.lane = Lane::kCommunication;
  const auto kernels =
      kernels_of({hidden, event(Category::kTransfer, 50, 70, kCall),
                  event(Category::kCompute, 0, 90, kBackward), event(Category::kStep, 0, 90)},
                 true);
  EXPECT_THAT(of(kernels, Stream::kCompute), testing::ElementsAre("2: 0-50", "2: 70-90"));
  EXPECT_THAT(of(kernels, Stream::kTransfer), testing::ElementsAre("3: 20-50", "3: 50-70"));
}

TEST(Kernels, OneOfAPartIsNamedByTheInnermostSpan) {
  const auto kernels =
      kernels_of({event(Category::kCompute, 10, 20, kForward),
                  event(Category::kCompute, 10, 40, kBackward), event(Category::kStep, 10, 50)},
                 true);
  EXPECT_THAT(of(kernels, Stream::kCompute), testing::ElementsAre("1: 10-20", "2: 20-40", "40-50"));
}

TEST(Kernels, OfOneStreamDoNotOverlapWhenSeveralCallsMove) {
  const auto kernels =
      kernels_of({event(Category::kTransfer, 10, 30, kCall),
                  event(Category::kTransfer, 20, 40, kForward), event(Category::kStep, 0, 50)},
                 true);
  EXPECT_THAT(of(kernels, Stream::kTransfer), testing::ElementsAre("3: 10-20", "1: 20-40"));
  EXPECT_THAT(of(kernels, Stream::kCompute), testing::ElementsAre("0-10", "40-50"));
}

TEST(Kernels, ThereAreNoneOutsideOfStepsAndEvaluations) {
  const auto kernels = kernels_of(
      {event(Category::kTransfer, 0, 5, kCall), event(Category::kStep, 10, 20),
       event(Category::kTransfer, 30, 35, kCall), event(Category::kCompute, 25, 40, kForward)},
      true);
  EXPECT_THAT(of(kernels, Stream::kTransfer), testing::ElementsAre("3: 30-35"));
  EXPECT_THAT(of(kernels, Stream::kCompute), testing::ElementsAre("10-20", "1: 25-30", "1: 35-40"));
}

TEST(Kernels, WhoseWaitsMayBeLostAreLeftOut) {
  const std::vector<Event> events = {event(Category::kStep, 0, 10), event(Category::kStep, 10, 20)};
  EXPECT_THAT(of(kernels_of(events, false), Stream::kCompute), testing::ElementsAre("10-20"));
  EXPECT_THAT(of(kernels_of(events, true), Stream::kCompute),
              testing::ElementsAre("0-10", "10-20"));
}

TEST(Kernels, ShorterOnesThanHalfAMicrosecondNeverEndBeforeTheyBegin) {
  std::vector<Event> events;
  for (int64_t ns = 0; ns < 20'000; ns += 300) {
    events.push_back({.start_ns = ns,
                      .end_ns = ns + 150,
                      .name = kCall,
                      .category = Category::kTransfer,
                      .step = 7});
  }
  events.push_back(event(Category::kStep, 0, 20));
  int64_t sum_us[kNumStreams] = {};
  for (const Kernel& kernel : kernels_of(events, true)) {
    EXPECT_GT(kernel.end_us, kernel.start_us);
    sum_us[static_cast<int>(kernel.stream)] += kernel.end_us - kernel.start_us;
  }
  EXPECT_EQ(sum_us[0] + sum_us[1], 20);  // they share boundaries, so nothing is lost
}

TEST(TimelineRows, ASpanThatDoesNotNestGetsARowOfItsOwn) {
  std::vector<Event> events = {
      event(Category::kCommunication, 0, 20), event(Category::kCommunication, 10, 30),
      event(Category::kCommunication, 12, 18), event(Category::kCommunication, 20, 40)};
  EXPECT_THAT(rows_of(events), testing::ElementsAre(0, 1, 0, 0));
  events[1].lane = Lane::kData;
  EXPECT_THAT(rows_of(events), testing::ElementsAre(0, 0, 0, 0));
}

TEST(TimelineRows, SpansOfTheSameTimeNest) {
  EXPECT_THAT(rows_of({event(Category::kCompute, 0, 20), event(Category::kStep, 0, 20)}),
              testing::ElementsAre(0, 0));
}

}  // namespace
}  // namespace hanji::trace
