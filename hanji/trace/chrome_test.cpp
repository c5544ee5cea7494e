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
  /// The last event that is no row name.
  Json written_event() {
    Json found;
    const Json trace = written();
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") found = event;
    }
    return found;
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
  EXPECT_THAT(rows, testing::ElementsAre("main", "communication", "data", "checkpoint"));
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
  EXPECT_DOUBLE_EQ(event["ts"], 1'000'000.007);
  EXPECT_DOUBLE_EQ(event["dur"], 2.001);
  EXPECT_FALSE(event["args"].contains("stream"));
}

TEST_F(Chrome, ACollectiveHasItsNameStreamAndSizes) {
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
  EXPECT_EQ(event["name"], "nccl:all_reduce bucket 3 Kernel");
  EXPECT_EQ(event["cat"], "kernel");
  EXPECT_EQ(event["tid"], 1);
  EXPECT_EQ(event["args"]["stream"], 1);
  EXPECT_EQ(event["args"]["Collective name"], "all_reduce");
  EXPECT_EQ(event["args"]["Group size"], 3);
  EXPECT_EQ(event["args"]["dtype"], "BFloat16");
  EXPECT_EQ(event["args"]["In msg nelems"], 2048);
  EXPECT_EQ(event["args"]["Seq"], 77);
}

TEST_F(Chrome, ComputeIsOnAStreamAndDataIsNot) {
  recorder_.add({.category = Category::kCompute});
  EXPECT_EQ(written_event()["args"]["stream"], 0);
  recorder_.add({.lane = Lane::kData, .category = Category::kData});
  EXPECT_FALSE(written_event()["args"].contains("stream"));
  EXPECT_EQ(written_event()["cat"], "cpu_op");
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
