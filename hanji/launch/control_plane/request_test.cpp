#include "hanji/launch/control_plane/request.h"

#include <gtest/gtest.h>

namespace hanji::launch {
namespace {

const Request kWait{.operation = Operation::kWait,
                    .id = 7,
                    .acknowledged = 5,
                    .number = -3,
                    .texts = {"a", "", "longer key"}};

TEST(Request, IsReadBackAsItIsWritten) {
  EXPECT_EQ(*parse_request(to_bytes(kWait)), kWait);
  const Request ping;
  EXPECT_EQ(*parse_request(to_bytes(ping)), ping);
  const Response response{9, Code::kTimeout, "rank 2"};
  EXPECT_EQ(*parse_response(to_bytes(response)), response);
}

TEST(Request, IsRefusedWhereverItIsCut) {
  const std::string bytes = to_bytes(kWait);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(parse_request(bytes.substr(0, size)).status().code(), Code::kCorrupt) << size;
  }
  EXPECT_EQ(parse_request(bytes + "x").status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_response("12345678").status().code(), Code::kCorrupt);
}

TEST(Request, NoLaterNumberStandsInForOneThatIsCut) {
  const std::string cancel(1, static_cast<char>(Operation::kCancel));
  EXPECT_EQ(parse_request(cancel + std::string(4, '\0')).status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_response(std::string(5, '\1')).status().code(), Code::kCorrupt);
}

TEST(Request, IsRefusedWithAHugeLengthOrCount) {
  std::string bytes = to_bytes(kWait);
  for (const size_t at : {size_t{25}, size_t{29}}) {
    std::string broken = bytes;
    for (size_t i = 0; i < 4; ++i) broken[at + i] = '\xFF';
    EXPECT_EQ(parse_request(broken).status().code(), Code::kCorrupt) << at;
  }
}

TEST(Request, IsRefusedWithAWrongNumberOfTexts) {
  for (const Operation operation : {Operation::kPing, Operation::kSet, Operation::kCompareSet}) {
    const Request request{.operation = operation, .texts = {"one"}};
    EXPECT_EQ(parse_request(to_bytes(request)).status().code(), Code::kCorrupt);
  }
  std::string bytes = to_bytes(Request{});
  bytes[0] = kNumOperations;
  EXPECT_EQ(parse_request(bytes).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::launch
