#include "hanji/base/status.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>

namespace hanji::base {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("odd");
  return value / 2;
}

Status quarter(int value, int& out) {
  HANJI_ASSIGN_OR_RETURN(const int first, half(value));
  HANJI_ASSIGN_OR_RETURN(out, half(first));
  return {};
}

TEST(Status, AssignOrReturnPassesTheValueOn) {
  int out = 0;
  EXPECT_TRUE(quarter(12, out).ok());
  EXPECT_EQ(out, 3);
}

TEST(Status, AssignOrReturnStopsAtTheFirstError) {
  int out = 7;
  EXPECT_EQ(quarter(6, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(out, 7);
}

TEST(Status, AtPrefixesAnErrorAndLeavesOkAlone) {
  EXPECT_EQ(corrupt("bad magic").at("model.safetensors").message(), "model.safetensors: bad magic");
  EXPECT_TRUE(Status().at("anywhere").ok());
}

TEST(Status, ErrnoBecomesTheCodeThatSaysWhatToDo) {
  EXPECT_EQ(from_errno("open", ENOENT).code(), Code::kNotFound);
  EXPECT_EQ(from_errno("write", ENOSPC).code(), Code::kOutOfMemory);
  EXPECT_EQ(from_errno("write", EDQUOT).code(), Code::kOutOfMemory);
  EXPECT_EQ(from_errno("open", EPERM).code(), Code::kInvalidArgument);
  EXPECT_EQ(from_errno("write", EIO).code(), Code::kInternal);
}

TEST(Status, WhatTheUserCanMendHasAWayOut) {
  for (const int error : {EACCES, EROFS, EISDIR, ENOTDIR, EEXIST, ENAMETOOLONG, ELOOP, EFBIG,
                          ETXTBSY, ENXIO, EMFILE}) {
    const Status status = from_errno("open x", error);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_THAT(status.message(),
                testing::StartsWith(std::string("open x: ") + std::strerror(error) + "; "));
  }
}

TEST(Result, OrThrowCarriesTheCode) {
  EXPECT_EQ(half(4).or_throw(), 2);
  EXPECT_THAT([] { return half(3).or_throw(); }, testing::ThrowsMessage<Error>("odd"));
}

}  // namespace
}  // namespace hanji::base
