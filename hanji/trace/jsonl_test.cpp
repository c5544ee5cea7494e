#include "hanji/trace/jsonl.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cmath>
#include <limits>

namespace hanji::trace {
namespace {

using base::OutputFile;

TEST(JsonLine, KeepsOrderTypesAndEveryBitOfADouble) {
  const double third = 1.0 / 3.0;
  const std::string line = JsonLine()
                               .add("step", 3)
                               .add("loss", third)
                               .add("big", int64_t{1} << 62)
                               .add("ok", true)
                               .add("name", "a\"b")
                               .add_json("list", "[1,2]")
                               .take();
  EXPECT_EQ(line, R"({"step":3,"loss":0.3333333333333333,"big":4611686018427387904,"ok":true,)"
                  R"("name":"a\"b","list":[1,2]})");
  EXPECT_EQ(std::stod(line.substr(line.find("0.3"))), third);
}

TEST(JsonLine, NanAndInfinityBecomeNull) {
  EXPECT_EQ(
      JsonLine().add("a", std::nan("")).add("b", -std::numeric_limits<double>::infinity()).take(),
      R"({"a":null,"b":null})");
}

TEST(JsonLine, IsEmptyAgainAfterTake) {
  JsonLine line;
  line.add("a", 1);
  EXPECT_EQ(line.take(), R"({"a":1})");
  EXPECT_EQ(line.take(), "{}");
}

class Jsonl : public testing::Test {
 protected:
  Jsonl() { folder_ = ::mkdtemp(template_); }
  ~Jsonl() override { static_cast<void>(base::remove_tree(folder_)); }
  char template_[32] = "/tmp/hanji_jsonl_XXXXXX";
  std::filesystem::path folder_;
};

TEST_F(Jsonl, ALineIsInTheFileWhenWriteReturns) {
  auto writer = JsonlWriter::open(folder_ / "run.jsonl");
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(writer->write("{\"step\":1}").ok());
  EXPECT_EQ(*base::read_file(folder_ / "run.jsonl"), "{\"step\":1}\n");
}

TEST_F(Jsonl, AppendsAfterALineThatAKilledWriterLeftOpen) {
  ASSERT_TRUE(base::write_file_atomic(folder_ / "run.jsonl", "{\"step\":1}\n{\"st").ok());
  EXPECT_TRUE(JsonlWriter::open(folder_ / "run.jsonl")->write("{\"step\":2}").ok());
  EXPECT_EQ(*base::read_file(folder_ / "run.jsonl"), "{\"step\":1}\n{\"st\n{\"step\":2}\n");
  EXPECT_TRUE(JsonlWriter::open(folder_ / "run.jsonl")->write("{}").ok());
  EXPECT_EQ(*base::read_file(folder_ / "run.jsonl"), "{\"step\":1}\n{\"st\n{\"step\":2}\n{}\n");
}

TEST_F(Jsonl, TruncateStartsAnew) {
  ASSERT_TRUE(base::write_file_atomic(folder_ / "run.jsonl", "old\n").ok());
  EXPECT_TRUE(
      JsonlWriter::open(folder_ / "run.jsonl", OutputFile::Mode::kTruncate)->write("{}").ok());
  EXPECT_EQ(*base::read_file(folder_ / "run.jsonl"), "{}\n");
}

TEST_F(Jsonl, RefusesALineBreakInsideALine) {
  auto writer = JsonlWriter::open(folder_ / "run.jsonl");
  EXPECT_EQ(writer->write("{\n}").code(), Code::kInvalidArgument);
  EXPECT_EQ(*base::read_file(folder_ / "run.jsonl"), "");
}

TEST_F(Jsonl, AFullDiskIsToldAtOnce) {
  auto writer = JsonlWriter::open("/dev/full");
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->write("{}").code(), Code::kOutOfMemory);
}

}  // namespace
}  // namespace hanji::trace
