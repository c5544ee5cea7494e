#include "hanji/trace/recorder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <latch>
#include <thread>

#include "hanji/base/random.h"
#include "hanji/base/shared_memory.h"
#include "hanji/trace/internal/ring_layout.h"
#include "hanji/trace/internal/test_memory.h"

namespace hanji::trace {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

using Memory = internal::TestMemory;

Event event_at(int64_t start_ns) { return {.start_ns = start_ns, .end_ns = start_ns + 5}; }

TEST(Recorder, GivesBackEveryFieldOfAnEvent) {
  Memory memory(Recorder::bytes_for(4));
  Recorder recorder = Recorder::format(memory.bytes(), 3, 8);
  const Event event{.start_ns = 11,
                    .end_ns = 13,
                    .name = recorder.intern("all_reduce"),
                    .lane = Lane::kCommunication,
                    .category = Category::kCheckpoint,
                    .step = 17,
                    .bytes = int64_t{1} << 40,
                    .sequence = 19,
                    .group_size = 23,
                    .group = 4351,
                    .routine = 9,
                    .op = 8,
                    .dtype = 4,
                    .counts = 0xFEDCBA98,
                    .call_site = 1023};
  recorder.add(event);

  const auto attached = Recorder::attach(memory.bytes());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ((*attached).rank(), 3);
  EXPECT_EQ((*attached).world_size(), 8);
  const std::vector<Event> events = (*attached).events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].start_ns, 11);
  EXPECT_EQ(events[0].end_ns, 13);
  EXPECT_EQ((*attached).name(events[0].name), "all_reduce");
  EXPECT_EQ(events[0].lane, Lane::kCommunication);
  EXPECT_EQ(events[0].category, Category::kCheckpoint);
  EXPECT_EQ(events[0].step, 17);
  EXPECT_EQ(events[0].bytes, int64_t{1} << 40);
  EXPECT_EQ(events[0].sequence, 19);
  EXPECT_EQ(events[0].group_size, 23);
  EXPECT_EQ(events[0].routine, 9);
  EXPECT_EQ(events[0].op, 8);
  EXPECT_EQ(events[0].dtype, 4);
  EXPECT_EQ(events[0].counts, 0xFEDCBA98u);
  EXPECT_EQ(events[0].group, 4351);
  EXPECT_EQ(events[0].call_site, 1023u);
}

TEST(Recorder, KeepsTheLastEventsInOrderAndCountsTheRest) {
  Memory memory(Recorder::bytes_for(3));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  EXPECT_EQ(recorder.num_dropped(), 0);
  for (int64_t i = 0; i < 8; ++i) recorder.add(event_at(i));
  EXPECT_THAT(recorder.events(), ElementsAre(Field(&Event::start_ns, 5), Field(&Event::start_ns, 6),
                                             Field(&Event::start_ns, 7)));
  EXPECT_EQ(recorder.num_dropped(), 5);
}

TEST(Recorder, StampsTheCurrentStepUnlessTheEventHasOne) {
  Memory memory(Recorder::bytes_for(4));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  recorder.set_step(41);
  recorder.add(event_at(1));
  Event early = event_at(2);
  early.step = 7;
  recorder.add(early);
  EXPECT_THAT(recorder.events(), ElementsAre(Field(&Event::step, 41), Field(&Event::step, 7)));
}

TEST(Recorder, InternsEqualNamesOnceAndCutsLongOnes) {
  Memory memory(Recorder::bytes_for(1));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  EXPECT_EQ(recorder.intern("forward"), recorder.intern(std::string("for") + "ward"));
  EXPECT_NE(recorder.intern("forward"), recorder.intern("backward"));
  EXPECT_EQ(recorder.name(recorder.intern("")), "");
  const std::string long_name = std::string(119, 'x') + "\xC3\xA9tail";  // byte 120 is inside e'
  EXPECT_EQ(recorder.name(recorder.intern(long_name)), std::string(119, 'x'));
  EXPECT_EQ(recorder.name(12345), "(unknown)");
}

TEST(Recorder, AFullNameTableAnswersOther) {
  Memory memory(Recorder::bytes_for(1, 2));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1, 2);
  const NameId a = recorder.intern("a");
  const NameId b = recorder.intern("b");
  EXPECT_EQ(recorder.intern("c"), 0u);
  EXPECT_EQ(recorder.name(0), "(other)");
  EXPECT_EQ(recorder.name(a) + recorder.name(b), "ab");
}

TEST(Recorder, FormatRefusesMemoryThatIsTooSmallOrCrooked) {
  Memory memory(Recorder::bytes_for(1));
  EXPECT_THROW(Recorder::format(memory.bytes().first(Recorder::bytes_for(1) - 1), 0, 1), Error);
  EXPECT_THROW(Recorder::format(memory.bytes().subspan(8), 0, 1), Error);
}

TEST(Recorder, SeveralThreadsAddWithoutMixingWordsWhileAnotherReads) {
  constexpr int kThreads = 4;
  constexpr int64_t kPerThread = 5000;
  Memory memory(Recorder::bytes_for(64));  // small: writers lap each other all the time
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  const auto check = [&](const Event& event) {
    EXPECT_EQ(event.end_ns, event.start_ns + 1);
    EXPECT_EQ(event.bytes, event.start_ns * 3);
    EXPECT_EQ(recorder.name(event.name), "thread " + std::to_string(event.sequence));
  };
  std::latch start(kThreads + 1);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      for (int64_t i = 1; i <= kPerThread; ++i) {
        recorder.add({.start_ns = i * kThreads + thread,
                      .end_ns = i * kThreads + thread + 1,
                      .name = recorder.intern("thread " + std::to_string(thread)),
                      .bytes = (i * kThreads + thread) * 3,
                      .sequence = thread});
      }
    });
  }
  start.arrive_and_wait();
  for (int i = 0; i < 200; ++i) recorder.for_each(check);
  threads.clear();
  recorder.for_each(check);
  EXPECT_GE(recorder.num_dropped(), kThreads * kPerThread - 64);
  EXPECT_GE(recorder.events().size(), 1u);
}

TEST(Recorder, SurvivesSigkillOfItsWriter) {
  auto memory = base::SharedMemory::create("trace", Recorder::bytes_for(16));
  ASSERT_TRUE(memory.ok());
  const std::span<std::byte> bytes(memory->data(), memory->size());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Recorder recorder = Recorder::format(bytes, 1, 2);
    recorder.set_step(57);
    recorder.add({.start_ns = 100, .end_ns = 200, .name = recorder.intern("bucket 4")});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

  const auto recorder = Recorder::attach(bytes);
  ASSERT_TRUE(recorder.ok()) << recorder.status().to_string();
  EXPECT_EQ((*recorder).rank(), 1);
  EXPECT_EQ((*recorder).step(), 57);
  const std::vector<Event> events = (*recorder).events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ((*recorder).name(events[0].name), "bucket 4");
}

TEST(Recorder, AValueTooLargeForItsFieldBecomesTheLargestAndSpoilsNoOther) {
  Memory memory(Recorder::bytes_for(1));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  recorder.add({.start_ns = 1,
                .end_ns = INT64_MAX,
                .lane = Lane::kData,
                .category = Category::kSkew,
                .step = INT64_MAX - 1,
                .bytes = INT64_MAX,
                .sequence = INT64_MAX - 1,
                .group = 1 << 20,
                .routine = 3,
                .op = 2,
                .call_site = UINT32_MAX});
  const Event event = recorder.events().at(0);
  EXPECT_EQ(event.end_ns, 1 + (int64_t{1} << 48) - 1);
  EXPECT_EQ(event.lane, Lane::kData);
  EXPECT_EQ(event.category, Category::kSkew);
  EXPECT_EQ(event.step, (int64_t{1} << 40) - 1);
  EXPECT_EQ(event.bytes, (int64_t{1} << 48) - 1);
  EXPECT_EQ(event.sequence, (int64_t{1} << 48) - 2);
  EXPECT_EQ(event.group, 65534);
  EXPECT_EQ(event.routine, 3);
  EXPECT_EQ(event.op, 2);
  EXPECT_EQ(event.dtype, kNoDType);
  EXPECT_EQ(event.call_site, 65535u);
}

TEST(Recorder, ARecordCutInTheMiddleIsSkipped) {
  Memory memory(Recorder::bytes_for(2));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  recorder.add(event_at(1));
  recorder.add(event_at(2));
  auto* records =
      reinterpret_cast<internal::Record*>(memory.bytes().data() + Recorder::bytes_for(0));
  records[1].stamp.store(5);  // ticket 1, being written when its owner died
  EXPECT_THAT(recorder.events(), ElementsAre(Field(&Event::start_ns, 1)));
  recorder.add(event_at(3));
  recorder.add(event_at(4));  // its slot is taken for ever
  EXPECT_THAT(recorder.events(), ElementsAre(Field(&Event::start_ns, 3)));
  EXPECT_EQ(recorder.num_dropped(), 2 + 1);
}

TEST(RecorderAttach, RefusesEveryWrongField) {
  const auto attach_after = [](auto change) {
    Memory memory(Recorder::bytes_for(4));
    Recorder::format(memory.bytes(), 0, 1);
    change(*reinterpret_cast<internal::Header*>(memory.bytes().data()));
    return Recorder::attach(memory.bytes()).status();
  };
  EXPECT_TRUE(attach_after([](internal::Header&) {}).ok());
  EXPECT_EQ(attach_after([](auto& header) { header.magic = 0; }).code(), Code::kCorrupt);
  EXPECT_THAT(attach_after([](auto& header) { header.version = 9; }).message(),
              HasSubstr("version 9"));
  EXPECT_THAT(attach_after([](auto& header) { header.num_events = 5; }).message(),
              HasSubstr("do not fit"));
  EXPECT_EQ(attach_after([](auto& header) { header.num_events = 0; }).code(), Code::kCorrupt);
  EXPECT_EQ(attach_after([](auto& header) { header.num_names = UINT32_MAX; }).code(),
            Code::kCorrupt);
  EXPECT_THAT(attach_after([](auto& header) { header.rank = 1; }).message(),
              HasSubstr("rank 1 of 1"));
  EXPECT_EQ(attach_after([](auto& header) { header.world_size = INT32_MAX; }).code(),
            Code::kCorrupt);
  Memory memory(Recorder::bytes_for(4));
  EXPECT_EQ(Recorder::attach(memory.bytes().first(64)).status().code(), Code::kCorrupt);
}

TEST(RecorderAttach, TellsWhereItsRankIsOnAMesh) {
  Memory memory(Recorder::bytes_for(4));
  Recorder recorder = Recorder::format(memory.bytes(), 2, 4);
  EXPECT_EQ(Recorder::attach(memory.bytes()).or_throw().coordinates(), "");
  recorder.set_coordinates("dp=1,tp=0");
  EXPECT_EQ(Recorder::attach(memory.bytes()).or_throw().coordinates(), "dp=1,tp=0");
  recorder.set_coordinates("");
  EXPECT_EQ(Recorder::attach(memory.bytes()).or_throw().coordinates(), "");
}

TEST(RecorderAttach, AnyBytesAreReadWithoutLeavingTheMemory) {
  int num_attached = 0;
  for (uint64_t trial = 0; trial < 300; ++trial) {
    Memory memory(Recorder::bytes_for(8, 4));
    Recorder writer = Recorder::format(memory.bytes(), 0, 1, 4);
    for (int64_t i = 0; i < 12; ++i) {
      Event event = event_at(i);
      event.name = writer.intern(std::to_string(i % 4));
      writer.add(event);
    }
    for (uint64_t flip = 0; flip < 40; ++flip) {
      const auto words = base::Philox::draw(trial, 0, flip);
      memory.bytes()[words[0] % memory.bytes().size()] = static_cast<std::byte>(words[1]);
    }
    const auto recorder = Recorder::attach(memory.bytes());
    if (!recorder.ok()) continue;
    ++num_attached;
    (*recorder).for_each([&](const Event& event) {
      EXPECT_LE((*recorder).name(event.name).size(), Recorder::kMaxNameBytes);
      EXPECT_LT(static_cast<int>(event.lane), kNumLanes);
      EXPECT_LE(event.start_ns, event.end_ns);
    });
    EXPECT_GE((*recorder).num_dropped(), 0);
  }
  EXPECT_GT(num_attached, 20) << "bytes were flipped in events and names, not in headers alone";
}

TEST(Span, RecordsItsLifeAndItsStep) {
  Memory memory(Recorder::bytes_for(4));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  recorder.set_step(5);
  {
    Span span(&recorder, "forward", Category::kCompute);
    span.set_bytes(9);
    recorder.set_step(6);
  }
  const std::vector<Event> events = recorder.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(recorder.name(events[0].name), "forward");
  EXPECT_EQ(events[0].category, Category::kCompute);
  EXPECT_EQ(events[0].bytes, 9);
  EXPECT_EQ(events[0].step, 5);
  EXPECT_GT(events[0].start_ns, 0);
  EXPECT_GE(events[0].end_ns, events[0].start_ns);
}

TEST(Span, IsShownWhileItIsOpenAndTheOuterOneAfterIt) {
  Memory memory(Recorder::bytes_for(8));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1);
  const auto seen = [&] { return Recorder::attach(memory.bytes()).or_throw().open_spans(); };
  EXPECT_EQ(seen(), "");
  {
    const Span step(&recorder, "step", Category::kStep);
    EXPECT_EQ(seen(), "step");
    {
      const Span forward(&recorder, "forward", Category::kCompute);
      const Span save(&recorder, "checkpoint write", Category::kCheckpoint, Lane::kCheckpoint);
      EXPECT_EQ(seen(), "forward, checkpoint write");
    }
    EXPECT_EQ(seen(), "step");
  }
  EXPECT_EQ(seen(), "");
}

TEST(Span, WithoutARecorderLeavesNothingInThatOfTheSpanAround) {
  Memory memory(Recorder::bytes_for(4, 2));
  Recorder recorder = Recorder::format(memory.bytes(), 0, 1, 2);
  {
    Span around(&recorder, "step", Category::kCompute);
    Span(nullptr, "forward", Category::kCompute).set_bytes(1);
  }
  EXPECT_THAT(recorder.events(), ElementsAre(Field(&Event::bytes, 0)));
  EXPECT_NE(recorder.intern("backward"), 0u) << "the unrecorded name took the place that was left";
}

}  // namespace
}  // namespace hanji::trace
