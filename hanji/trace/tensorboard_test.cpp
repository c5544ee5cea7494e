#include "hanji/trace/tensorboard.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstring>

#include "hanji/base/checksum.h"
#include "hanji/trace/internal/tensorboard_record.h"

namespace hanji::trace {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

// The golden bytes are those of the Python package tensorboard 2.21: its protobuf classes,
// SerializeToString, and its RecordWriter.
TEST(TensorBoardRecord, MasksTheChecksum) { EXPECT_EQ(internal::mask_crc(0xE3069283), 0xC78AB0E5); }

TEST(TensorBoardRecord, FramesAsRecordWriterDoes) {
  EXPECT_EQ(hex(internal::frame("abc")), "0300000000000000b099490e6162636e57f121");
}

TEST(TensorBoardRecord, EventsAreTheBytesOfTheProtobufClasses) {
  EXPECT_EQ(hex(internal::version_event(1.5)),
            "09000000000000f83f1a0d627261696e2e4576656e743a3252070a0568616e6a69");
  EXPECT_EQ(hex(internal::scalar_event(1700000000.25, 300, "loss", 2.5F)),
            "0900001040fc54d94110ac022a1a0a180a046c6f737315000020404a0b0a090a077363616c617273");
  EXPECT_EQ(hex(internal::restart_event(1.5, 21)), "09000000000000f83f10153a020801");
  EXPECT_EQ(
      hex(internal::text_event(1.5, -1, "sample", "hi")),
      "09000000000000f83f10ffffffffffffffffff012a220a200a0673616d706c65420c0807120412020801420268"
      "694a080a060a0474657874");
}

/// The payloads of a file of records; every checksum is verified.
std::vector<std::string> payloads(std::string_view file) {
  std::vector<std::string> result;
  while (!file.empty()) {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const std::string_view payload = file.substr(12, length);
    EXPECT_EQ(file.substr(0, 16 + length), internal::frame(payload));
    result.emplace_back(payload);
    file.remove_prefix(16 + length);
  }
  return result;
}

class TensorBoard : public testing::Test {
 protected:
  TensorBoard() { folder_ = ::mkdtemp(template_); }
  ~TensorBoard() override { static_cast<void>(base::remove_tree(folder_)); }
  char template_[32] = "/tmp/hanji_board_XXXXXX";
  std::filesystem::path folder_;
};

TEST_F(TensorBoard, EveryRecordIsInTheFileWhenTheCallReturns) {
  auto writer = TensorBoardWriter::open(folder_ / "tensorboard");
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  ASSERT_TRUE(writer->scalar("train/loss", 7, 0.5).ok());
  ASSERT_TRUE(writer->text("sample", 7, "To be").ok());
  const std::vector<std::string> events = payloads(*base::read_file(writer->path()));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].substr(9), internal::version_event(0).substr(9));  // 9 bytes of time
  EXPECT_EQ(events[1].substr(9), internal::scalar_event(0, 7, "train/loss", 0.5F).substr(9));
  EXPECT_EQ(events[2].substr(9), internal::text_event(0, 7, "sample", "To be").substr(9));
  EXPECT_TRUE(writer->flush().ok());
}

TEST_F(TensorBoard, TwoWritersNeverShareAFile) {
  const auto first = TensorBoardWriter::open(folder_);
  const auto second = TensorBoardWriter::open(folder_);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto files = *base::list_files(folder_);
  EXPECT_EQ(files.size(), 2u);
  EXPECT_THAT(files[0].filename().string(),
              testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\.[0-9]+\\.[0-9]+"));
}

TEST_F(TensorBoard, AFolderThatCannotBeMadeIsRefused) {
  EXPECT_FALSE(TensorBoardWriter::open("/dev/null/runs").ok());
}

}  // namespace
}  // namespace hanji::trace
