#include "hanji/launch/ssh.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HostList, ReadsNamesAddressesAndRanks) {
  const std::vector<RemoteHost> expected = {{"a", 4}, {"me@b.net", 2}, {"::1", 3}, {"c", 0}};
  EXPECT_EQ(*parse_hosts("a:4,me@b.net:2,[::1]:3,c"), expected);
}

TEST(HostList, RefusesOptionsShellWordsAndWrongNumbers) {
  for (const char* text : {"", "a,,b", "-oProxyCommand=x", "a;b", "a b", "$(x)", "a:0", "a:x",
                           "[::1", "[::1]x:2", "a:4:4"}) {
    EXPECT_EQ(parse_hosts(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(ShellQuotes, AreReadBackByAShell) {
  EXPECT_EQ(quote_for_shell("plain"), "'plain'");
  EXPECT_EQ(quote_for_shell("it's"), R"('it'\''s')");
  EXPECT_EQ(quote_for_shell(""), "''");
}

/// `ssh` is a script that notes its arguments and does what the test says with the remote line.
class SshTest : public testing::Test {
 protected:
  SshOptions options(const std::string& script) {
    const auto path = folder_.path() / "ssh";
    base::throw_if_error(base::write_file_atomic(path, "#!/bin/sh\n" + script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    SshOptions options;
    options.hosts = {{"a", 2}, {"b", 1}};
    options.ssh = path;
    options.command = {"prog", "it's; $HOME", ""};
    options.launcher = "/opt/hanji";
    options.directory = folder_.path();
    options.on_event = [this](const RankEvent& event) { told_ += event.text + "\n"; };
    return options;
  }
  std::string text_of(const std::string& name) {
    return base::read_file(folder_.path() / name).or_throw();
  }
  test::TemporaryFolder folder_;
  std::string told_;
};

TEST_F(SshTest, GivesTheTokenOnStdinAndNowhereElse) {
  const auto code = run_on_hosts(
      options("cd " + folder_.path().string() + "\n" +
              "for host; do before=$last; last=$host; done\n"
              "read token\n"
              "echo \"$token\" >token.$before; echo \"$@\" >args.$before; env >env.$before\n"));
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 0);
  const std::string token = text_of("token.a");
  EXPECT_EQ(token.size(), 65u);
  EXPECT_EQ(text_of("token.b"), token);
  for (const char* name : {"args.a", "args.b", "env.a", "env.b"}) {
    EXPECT_THAT(text_of(name), Not(HasSubstr(token.substr(0, 16)))) << name;
  }
  EXPECT_THAT(text_of("args.b"),
              testing::AllOf(HasSubstr("BatchMode=yes"), HasSubstr("'--node-rank' '1'"),
                             HasSubstr("'-n' '1'"), HasSubstr(R"('it'\''s; $HOME' '')")));
  EXPECT_THAT(text_of("args.a"), HasSubstr("'--node-rank' '0'"));
}

TEST_F(SshTest, NamesAHostThatCannotBeReachedAndEndsTheOthers) {
  // The one that is reached waits until its standard input ends.
  const auto code = run_on_hosts(
      options("case \"$*\" in *-rank*1*--ren*) exit 255;; esac\ncat >/dev/null; exit 6\n"));
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 2);
  EXPECT_THAT(told_, HasSubstr("host b (node 1) cannot be reached"));
}

TEST_F(SshTest, ReturnsTheCodeOfTheFirstLauncherThatFailed) {
  const auto code = run_on_hosts(options("read token; exit 137\n"));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(*code, 137);
}

TEST_F(SshTest, TellsThatThereIsNoSuchProgram) {
  SshOptions none = options("");
  none.ssh = folder_.path() / "none";
  EXPECT_EQ(run_on_hosts(none).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::launch
