#include "hanji/base/exception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <thread>

namespace hanji::base {
namespace {

struct OwnError : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class T>
std::exception_ptr of(T exception) {
  return std::make_exception_ptr(std::move(exception));
}

TEST(DescribeException, NamesTypeAndWords) {
  EXPECT_EQ(describe_exception(of(std::out_of_range("far"))), "std::out_of_range: far");
  EXPECT_EQ(describe_exception(of(OwnError("page 7"))),
            "hanji::base::(anonymous namespace)::OwnError: page 7");
  EXPECT_EQ(describe_exception(of(Error(corrupt("page 7")))), "page 7");
  EXPECT_EQ(describe_exception(of(std::runtime_error("x\nException raised from f at g:\nframe"))),
            "std::runtime_error: x");
  EXPECT_EQ(describe_exception(of(std::string("words"))), "words");
  EXPECT_EQ(describe_exception(of<const char*>("words")), "words");
  EXPECT_EQ(describe_exception(of(7)), "an exception of type int");
}

TEST(StatusOfProgram, IsNoFaultOfHanji) {
  EXPECT_EQ(status_of_program(of(OwnError("page 7"))).code(), Code::kInvalidArgument);
  EXPECT_EQ(status_of_program(of(7)).code(), Code::kInvalidArgument);
  EXPECT_EQ(status_of_program(of(Error(timeout("late")))).to_string(), "timeout: late");
  EXPECT_EQ(status_of_program(of(std::bad_alloc())).code(), Code::kOutOfMemory);
  const std::runtime_error torchs("DefaultCPUAllocator: can't allocate memory: you tried 1 byte");
  EXPECT_EQ(status_of_program(of(torchs)).code(), Code::kOutOfMemory);
}

TEST(UncaughtReportDeathTest, TellsWhatNobodyCaughtAndTheProcessEndsAsBefore) {
  const auto throw_told = [] {
    const UncaughtReport first([](const std::string& text) {
      const std::string line = "told: " + text + "\n";
      EXPECT_EQ(::write(STDERR_FILENO, line.data(), line.size()), std::ssize(line));
    });
    const UncaughtReport second([](const std::string&) { ::_exit(9); });
    std::thread([] { throw OwnError("page 7"); }).join();
  };
  EXPECT_EXIT(throw_told(), testing::KilledBySignal(SIGABRT), "told: .*OwnError: page 7");
}

}  // namespace
}  // namespace hanji::base
