#include "hanji/trace/chrome.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "hanji/base/dtype.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/trace/internal/test_memory.h"

namespace hanji::trace {
namespace {

using base::Json;
using testing::HasSubstr;

class Chrome : public testing::Test {
 protected:
  Chrome() { folder_ = ::mkdtemp(template_); }
  ~Chrome() override { static_cast<void>(base::remove_tree(folder_)); }

  /// Writes the recorder and reads the file back as JSON.
  Json written() {
    const auto path = folder_ / "rank_1.json";
    const Status status = write_chrome_trace(path, recorder_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto text = base::read_file(path);
    auto json = base::parse_json(*text);
    EXPECT_TRUE(json.ok()) << json.status().to_string();
    return *std::move(json);
  }
  /// The last event that is no row name and no kernel.
  Json written_event() {
    Json found;
    const Json trace = written();
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["cat"] != "kernel") found = event;
    }
    return found;
  }
  std::vector<Json> written_kernels() {
    std::vector<Json> kernels;
    const Json trace = written();
    for (const Json& event : trace["traceEvents"]) {
      if (event["cat"] == "kernel") kernels.push_back(event);
    }
    return kernels;
  }

  char template_[32] = "/tmp/hanji_chrome_XXXXXX";
  std::filesystem::path folder_;
  internal::TestMemory memory_{Recorder::bytes_for(8)};
  Recorder recorder_ = Recorder::format(memory_.bytes(), 1, 3);
};

TEST_F(Chrome, TellsTheRankBeforeTheEvents) {
  const Json trace = written();
  EXPECT_EQ(trace["distributedInfo"]["rank"], 1);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 3);
  EXPECT_EQ(trace["distributedInfo"]["pg_config"][0]["ranks"], Json({0, 1, 2}));
  EXPECT_EQ(trace["baseTimeNanoseconds"], recorder_.wall_offset_ns());
  EXPECT_EQ(std::prev(trace.end()).key(), "traceEvents");
  EXPECT_THAT(*base::read_file(folder_ / "rank_1.json"),
              HasSubstr("\"rank\": 1"));  // HTA's pattern
}

TEST_F(Chrome, OfAnotherHostHasTheTimesOfRankZeroAndTellsTheError) {
  recorder_.add({.start_ns = 1000, .end_ns = 3000, .category = Category::kOther});
  const auto path = folder_ / "rank_1.json";
  EXPECT_EQ(written()["clock"]["error_ns"], 0);
  const ClockOffset clock(ClockReading{.at_ns = 0, .offset_ns = 5'000'000, .error_ns = 700});
  ASSERT_TRUE(write_chrome_trace(path, recorder_, clock).ok());
  const Json trace = *base::parse_json(*base::read_file(path));
  EXPECT_EQ(trace["clock"]["of"], "rank 0");
  EXPECT_EQ(trace["clock"]["error_ns"], 700);
  EXPECT_EQ(trace["baseTimeNanoseconds"], recorder_.wall_offset_ns() - 5'000'000);
  EXPECT_EQ(trace["traceEvents"].back()["ts"], 5001);
  EXPECT_EQ(trace["traceEvents"].back()["dur"], 2);
}

TEST_F(Chrome, NamesTheProcessByRankAndCoordinates) {
  const auto name = [&] { return written()["traceEvents"][0]["args"]["name"]; };
  EXPECT_EQ(name(), "rank 1");
  recorder_.set_coordinates("dp=0,tp=1");
  EXPECT_EQ(name(), "rank 1 (dp=0,tp=1)");
}

TEST_F(Chrome, NamesOneRowPerLane) {
  std::vector<std::string> rows;
  const Json trace = written();
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(rows, testing::ElementsAre("main", "communication", "data", "checkpoint",
                                         "stream 0: compute", "stream 1: transfer"));
}

TEST_F(Chrome, AStepIsWhatAnalysesCallAProfilerStep) {
  recorder_.add({.start_ns = 1'000'000'007,
                 .end_ns = 1'000'002'008,
                 .name = recorder_.intern("train"),
                 .category = Category::kStep,
                 .step = 12});
  const Json event = written_event();
  EXPECT_EQ(event["name"], "ProfilerStep#12");
  EXPECT_EQ(event["cat"], "user_annotation");
  EXPECT_EQ(event["pid"], 1);
  EXPECT_EQ(event["ts"].dump(), "1000000");  // analyses round fractions inwards
  EXPECT_EQ(event["dur"].dump(), "2");
  EXPECT_FALSE(event["args"].contains("stream"));
}

TEST_F(Chrome, ACollectiveHasItsNameAndSizes) {
  recorder_.add({.start_ns = 0,
                 .end_ns = 5000,
                 .name = recorder_.intern("all_reduce bucket 3"),
                 .lane = Lane::kCommunication,
                 .category = Category::kCommunication,
                 .bytes = 4096,
                 .sequence = 77,
                 .group_size = 3,
                 .dtype = static_cast<uint8_t>(DType::kBFloat16)});
  const Json event = written_event();
  EXPECT_EQ(event["name"], "nccl:all_reduce bucket 3");
  EXPECT_EQ(event["cat"], "cpu_op");
  EXPECT_EQ(event["tid"], 1);
  EXPECT_FALSE(event["args"].contains("stream"));
  EXPECT_EQ(event["args"]["Collective name"], "all_reduce");
  EXPECT_EQ(event["args"]["Group size"], 3);
  EXPECT_EQ(event["args"]["dtype"], "BFloat16");
  EXPECT_EQ(event["args"]["In msg nelems"], 2048);
  EXPECT_EQ(event["args"]["Seq"], 77);
}

TEST_F(Chrome, ComputingAndMovingAreKernelsOfStreamsAndWaitingIsNone) {
  recorder_.add({.start_ns = 2000, .end_ns = 3000, .category = Category::kSkew});
  recorder_.add({.start_ns = 3000,
                 .end_ns = 6000,
                 .name = recorder_.intern("all_reduce"),
                 .category = Category::kTransfer});
  recorder_.add({.start_ns = 1000,
                 .end_ns = 6000,
                 .name = recorder_.intern("forward"),
                 .category = Category::kCompute});
  recorder_.add({.start_ns = 0, .end_ns = 7000, .category = Category::kStep});
  const std::vector<Json> kernels = written_kernels();
  std::vector<std::string> texts;
  for (const Json& kernel : kernels) {
    texts.push_back(kernel["name"].get<std::string>() + kernel["args"]["stream"].dump() +
                    kernel["ts"].dump() + kernel["dur"].dump());
  }
  EXPECT_THAT(texts, testing::ElementsAre("between parts001", "forward011",
                                          "nccl:all_reduce Kernel133", "between parts061"));
}

TEST_F(Chrome, CallsThatAreUnderWayTogetherHaveARowEach) {
  for (const int64_t start_ns : {0, 1000}) {
    recorder_.add({.start_ns = start_ns,
                   .end_ns = start_ns + 5000,
                   .lane = Lane::kCommunication,
                   .category = Category::kCommunication});
  }
  EXPECT_EQ(written_event()["tid"], 1 + kNumLanes);
  EXPECT_THAT(*base::read_file(folder_ / "rank_1.json"), HasSubstr("\"communication 2\""));
}

TEST_F(Chrome, AHostileNameStaysInsideItsString) {
  recorder_.add({.name = recorder_.intern("a\"},\n\\\x01\xFF"), .category = Category::kOther});
  EXPECT_EQ(written_event()["name"], "a\"},\n\\\x01\xFF");
}

TEST_F(Chrome, CountsWhatTheRingLost) {
  for (int i = 0; i < 11; ++i) recorder_.add({.category = Category::kCompute});
  EXPECT_EQ(written()["dropped_events"], 3);
}

TEST_F(Chrome, RefusesANameThatAnalysesSkip) {
  EXPECT_THAT(write_chrome_trace(folder_ / "trace.txt", recorder_).message(), HasSubstr(".json"));
}

TEST_F(Chrome, AFullDiskLeavesNoHalfFile) {
  const Status status = write_chrome_trace("/dev/full/rank_0.json", recorder_);
  EXPECT_FALSE(status.ok());
  std::filesystem::create_symlink("/dev/full", folder_ / "rank_0.json.partial");
  const Status full = write_chrome_trace(folder_ / "rank_0.json", recorder_);
  EXPECT_EQ(full.code(), Code::kOutOfMemory);
  EXPECT_THAT(full.message(), testing::Not(testing::HasSubstr("partial")));
  EXPECT_THAT(*base::list_files(folder_), testing::IsEmpty());
}

}  // namespace
}  // namespace hanji::trace
