#include "hanji/cli/completion_script.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <memory>

namespace hanji::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    const Verb plan = root_.add_verb("plan", "Plans; it's [dry]: nothing runs");
    plan.add_option("-n,--ranks", &ranks_, "processes").type_name("N");
    plan.add_option("--config", &text_, "of the job").type_name("FILE");
    plan.add_option("--states", &text_).one_of({"mixed", "fp32"});
    plan.add_flag("--json", &flag_, "for programs");
    plan.add_option("--internal", &text_).group("");
    const Verb files = root_.add_verb("files", "About files");
    files.add_verb("make", "Makes").add_option("--out", &text_, "where").type_name("DIR");
    files.add_verb("show", "Shows")
        .add_option("how", &number_)
        .translate({{"large", 1}, {"small", 2}});
    root_.add_verb("secret", "");
  }

  VerbDescription described() { return root_.describe(); }

  /// What bash offers for the last of the words, joined by blanks.
  std::string offered(const std::vector<std::string>& words) {
    std::string script = bash_completion(described()) + "compopt() { :; }\nCOMP_WORDS=(tool";
    for (const std::string& word : words) script += " '" + word + "'";
    script += ")\nCOMP_CWORD=" + std::to_string(words.size()) +
              "\n_tool\nprintf '%s' \"${COMPREPLY[*]}\"\n";
    const std::string file = testing::TempDir() + "completion.bash";
    std::FILE* out = std::fopen(file.c_str(), "w");
    std::fputs(script.c_str(), out);
    std::fclose(out);
    return output_of("bash -eu " + file + " 2>&1");
  }

  static std::string output_of(const std::string& command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                               ::pclose);
    std::string text;
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
    return text;
  }

  CommandLine command_{"tool", "What it is for", "tool 1.2"};
  Verb root_ = command_.root();
  std::string text_;
  int ranks_ = 0, number_ = 0;
  bool flag_ = false;
};

TEST_F(CompletionTest, EveryListedVerbAndOptionIsInEveryScript) {
  for (const auto& script :
       {bash_completion(described()), zsh_completion(described()), fish_completion(described())}) {
    EXPECT_THAT(script, AllOf(HasSubstr("plan"), HasSubstr("ranks"), HasSubstr("config"),
                              HasSubstr("states"), HasSubstr("json"), HasSubstr("make"),
                              HasSubstr("large"), HasSubstr("help"), HasSubstr("version")));
    EXPECT_THAT(script, AllOf(Not(HasSubstr("internal")), Not(HasSubstr("secret"))));
  }
}

TEST_F(CompletionTest, WhatIsDeclaredLaterAppears) {
  root_.add_verb("later", "Is new").add_flag("--newer", &flag_, "too");
  EXPECT_THAT(bash_completion(described()), AllOf(HasSubstr("tool later"), HasSubstr("--newer")));
  EXPECT_THAT(zsh_completion(described()), AllOf(HasSubstr("later:Is new"), HasSubstr("--newer")));
  EXPECT_THAT(fish_completion(described()), AllOf(HasSubstr("tool later"), HasSubstr("-l newer")));
}

TEST_F(CompletionTest, BashOffersVerbsOptionsAndValuesWhereTheyStand) {
  EXPECT_EQ(offered({""}), "plan files -h --help --version");
  EXPECT_EQ(offered({"pl"}), "plan");
  EXPECT_EQ(offered({"plan", "--"}), "--help --ranks --config --states --json");
  EXPECT_EQ(offered({"plan", "--json", "--states", ""}), "mixed fp32");
  EXPECT_EQ(offered({"plan", "--states", "=", "f"}), "fp32");
  EXPECT_EQ(offered({"plan", "--states", "="}), "mixed fp32");
  EXPECT_EQ(offered({"plan", "--ranks", ""}), "");
  EXPECT_EQ(offered({"files", "m"}), "make");
  EXPECT_EQ(offered({"files", "make", "--o"}), "--out");
  EXPECT_EQ(offered({"files", "show", "l"}), "large");
  EXPECT_EQ(offered({"plan", "--config", "/etc/host"}).substr(0, 9), "/etc/host");
}

TEST_F(CompletionTest, WordsOfTheHelpDoNotEndAQuotation) {
  EXPECT_THAT(zsh_completion(described()), HasSubstr("'plan:Plans; it'\\''s [dry]: nothing runs'"));
  EXPECT_THAT(fish_completion(described()), HasSubstr("'Plans; it\\'s [dry]: nothing runs'"));
}

}  // namespace
}  // namespace hanji::cli
