#include "hanji/base/symbols.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "hanji/base/crash_report.h"
#include "hanji/base/file.h"
#include "hanji/base/socket.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

using testing::HasSubstr;

namespace here {
[[gnu::noinline]] void function_without_export(int signal) {
  ::raise(signal);
  asm volatile("");
}
}  // namespace here

TEST(Symbols, NameFunctionsThatAreNotExported) {
  const auto ends = socket_pair().or_throw();
  const Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  report_crashes(nowhere.get(), "rank 3", {ends.first.get(), 'S'});
  here::function_without_export(SIGURG);
  const auto message = receive_message(ends.second.get(), 16 * 1024, Deadline::after({}));
  ASSERT_TRUE(message.ok()) << message.status().message();
  const std::string stack(reinterpret_cast<const char*>(message->bytes.data()),
                          message->bytes.size());
  EXPECT_EQ(stack[0], 'S');
  EXPECT_THAT(stack, HasSubstr("rank 3 (process "));
  const std::string named = symbolise(std::string_view(stack).substr(1));
  EXPECT_THAT(named, HasSubstr("here::function_without_export(int)"));
  EXPECT_THAT(named, HasSubstr(" in hanji_base_test\n"));
}

TEST(Symbols, WhatHasNoNameStaysAsItIs) {
  for (const std::string line :
       {"rank 3 (process 7): SIGABRT; stack of thread 7:\n", "  #0 /no/such/module() [+0x12]\n",
        "  #1 ?() [+0xffffffffffffffff]\n", "  #2 [+0x\n", "#()[+0xg]\n", "\n"}) {
    EXPECT_EQ(symbolise(line), line);
  }
}

TEST(Symbols, ABrokenModuleHasNone) {
  const test::TemporaryFolder folder;
  const std::string program = read_file(executable_path().or_throw()).or_throw();
  const auto path = folder.path() / "broken";
  const std::string line = "  #0 " + path.string() + "() [+0x1234]\n";
  for (const size_t bytes : {size_t{0}, size_t{3}, size_t{63}, size_t{64}, program.size() / 2}) {
    std::ofstream(path, std::ios::binary) << program.substr(0, bytes);
    EXPECT_EQ(symbolise(line), line);
  }
  std::string wild = program.substr(0, 4096);
  std::fill(wild.begin() + 24, wild.begin() + 52, '\xff');  // where its tables lie
  std::ofstream(path, std::ios::binary) << wild;
  EXPECT_EQ(symbolise(line), line);
}

}  // namespace
}  // namespace hanji::base
