#include "hanji/cli/command_line.h"

#include <gmock/gmock.h>

#include "hanji/cli/exit_code.h"

namespace hanji::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CommandLineTest : public testing::Test {
 protected:
  /// The exit code; `output_` and `mistake_` are what was printed.
  int run(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = command_.run(words);
    output_ = testing::internal::GetCapturedStdout();
    mistake_ = testing::internal::GetCapturedStderr();
    return code;
  }

  /// Why the words are refused.
  std::string refusal(const std::vector<std::string>& words) {
    EXPECT_EQ(run(words), kUsage);
    return mistake_;
  }

  CommandLine command_{"tool", "What it is for", "tool 1.2"};
  Verb root_ = command_.root();
  std::string output_, mistake_;
};

TEST_F(CommandLineTest, TheChosenVerbRunsAndItsCodeIsReturned) {
  root_.require_verb();
  root_.add_verb("plan", "Plans").on_chosen([] { return 3; });
  const Verb files = root_.add_verb("files", "About files");
  files.require_verb();
  files.add_verb("list", "Lists").on_chosen([] { return 4; });
  EXPECT_EQ(run({"plan"}), 3);
  CommandLine other("tool", "", "");
  other.root().add_verb("files", "").add_verb("list", "").on_chosen([] { return 4; });
  EXPECT_EQ(other.run({"files", "list"}), 4);
  EXPECT_THAT(refusal({"files"}), HasSubstr("A subcommand is required"));
}

TEST_F(CommandLineTest, AVerbThatRunsByItselfMayHaveVerbs) {
  const Verb verb = root_.add_verb("explain", "Explains");
  std::string subject;
  verb.add_option("subject", &subject);
  verb.add_verb("tp", "").on_chosen([] { return 5; });
  verb.on_chosen([&] { return subject == "ring" ? 6 : 7; });
  EXPECT_EQ(run({"explain", "tp"}), 5);
  EXPECT_EQ(run({"explain", "ring"}), 6);
}

TEST_F(CommandLineTest, HelpFitsTheTerminalWithExplanationsBelowEachOther) {
  const Verb verb = root_.add_verb("plan", "Plans");
  std::string value;
  verb.add_option("--interface", &value,
                  "the interface or the address between hosts, which the route names by default");
  EXPECT_EQ(run({"plan", "--help"}), 0);
  EXPECT_THAT(
      output_,
      HasSubstr("--interface TEXT            the interface or the address between hosts, which\n" +
                std::string(30, ' ') + "the route names by default\n"));
}

TEST_F(CommandLineTest, HelpAndVersionEndItWithoutARun) {
  const Verb verb = root_.add_verb("plan", "Plans");
  verb.on_chosen([] { return 3; });
  verb.footer("the last words");
  root_.add_verb("secret", "").on_chosen([] { return 5; });
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(output_, "tool 1.2\n");
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(output_, HasSubstr("Plans"));
  EXPECT_THAT(output_, Not(HasSubstr("secret")));
  EXPECT_EQ(run({"plan", "--help"}), 0);
  EXPECT_THAT(output_, HasSubstr("the last words"));
  EXPECT_EQ(run({"secret"}), 5);
}

TEST_F(CommandLineTest, EveryTargetTakesItsValue) {
  std::string text;
  std::optional<std::string> some, none;
  std::vector<std::string> words;
  int number = 0;
  int64_t large = 0;
  std::optional<int64_t> step;
  uint64_t seed = 0;
  double rate = 0;
  bool flag = false;
  root_.add_option("--text", &text);
  root_.add_option("--some", &some);
  root_.add_option("--none", &none);
  root_.add_option("word", &words);
  root_.add_option("-n,--number", &number);
  root_.add_option("--large", &large);
  root_.add_option("--step", &step);
  root_.add_option("--seed", &seed);
  root_.add_option("--rate", &rate);
  root_.add_flag("--flag", &flag);
  EXPECT_EQ(run({"--text", "a", "--some=b", "-n", "-3", "--large", "9000000000", "--step", "7",
                 "--seed", "18446744073709551615", "--rate", "1e-1", "--flag", "c", "d"}),
            0);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(some, "b");
  EXPECT_EQ(none, std::nullopt);
  EXPECT_THAT(words, ElementsAre("c", "d"));
  EXPECT_EQ(number, -3);
  EXPECT_EQ(large, 9'000'000'000);
  EXPECT_EQ(step, 7);
  EXPECT_EQ(seed, ~uint64_t{0});
  EXPECT_DOUBLE_EQ(rate, .1);
  EXPECT_TRUE(flag);
  EXPECT_TRUE(root_.was_given("--number"));
  EXPECT_EQ(root_.text_of("--number"), "-3");
  EXPECT_FALSE(root_.was_given("--none"));
}

TEST_F(CommandLineTest, OptionsSayWhatTheyTake) {
  std::string folder = ".", hidden, once = "no", grouped;
  std::vector<std::string> keys, rest;
  root_.add_option("--folder", &folder, "where").type_name("DIR").show_default();
  root_.add_option("--hidden", &hidden).group("");
  root_.add_option("--grouped", &grouped).group("Several hosts");
  root_.add_option("--key", &keys).repeatable();
  root_.add_option("--once", &once).implicit_value("set");
  root_.add_option("command", &rest).required();
  root_.positionals_at_end();
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(output_, HasSubstr("--folder DIR=."));
  EXPECT_THAT(output_, HasSubstr("Several hosts:"));
  EXPECT_THAT(output_, Not(HasSubstr("--hidden")));
  EXPECT_THAT(refusal({"--once"}), HasSubstr("command is required"));
}

TEST_F(CommandLineTest, ValuesAreRepeatedImpliedOrLeftToTheCommand) {
  std::string once = "no";
  std::vector<std::string> keys, rest;
  root_.add_option("--key", &keys).repeatable();
  root_.add_option("--once", &once).implicit_value("set");
  root_.add_option("command", &rest);
  root_.positionals_at_end();
  EXPECT_EQ(run({"--key", "a", "--key", "b", "--once", "--key", "c", "program", "--key", "d"}), 0);
  EXPECT_THAT(keys, ElementsAre("a", "b", "c"));
  EXPECT_EQ(once, "set");
  EXPECT_THAT(rest, ElementsAre("program", "--key", "d"));
}

TEST_F(CommandLineTest, TwoDashesSeparateOptionsFromTheCommand) {
  int ranks = 0;
  std::vector<std::string> rest;
  root_.require_verb();
  const Verb verb = root_.add_verb("run", "Runs");
  verb.add_option("--ranks", &ranks);
  verb.add_option("command", &rest);
  verb.positionals_at_end();
  verb.on_chosen([] { return 3; });
  EXPECT_EQ(run({"run", "--ranks", "2", "--", "program", "--ranks", "3"}), 3) << mistake_;
  EXPECT_EQ(ranks, 2);
  EXPECT_THAT(rest, ElementsAre("program", "--ranks", "3"));
  EXPECT_EQ(run({"run", "--", "--program"}), 3) << mistake_;
  EXPECT_THAT(rest, ElementsAre("--program"));
  EXPECT_THAT(refusal({"run", "--rank", "--", "program"}), HasSubstr("--rank is no option of run"));
}

TEST_F(CommandLineTest, MistakesNameTheirOption) {
  int number = 0, least = 0, choice = -1;
  bool also = false;
  std::string kind, one, other;
  root_.add_option("--number", &number).range(1, 5);
  root_.add_option("--least", &least).not_negative();
  root_.add_option("--kind", &kind).one_of({"mixed", "fp32"});
  root_.add_option("--choice", &choice).translate({{"stop", 0}, {"continue", 1}});
  const Option first = root_.add_option("--one", &one);
  root_.add_option("--other", &other).excludes(first);
  root_.add_flag("--also", &also).needs(first);
  EXPECT_THAT(refusal({"--number", "6"}), HasSubstr("--number"));
  EXPECT_THAT(refusal({"--least", "-1"}), HasSubstr("--least is -1, which is below 0"));
  EXPECT_THAT(refusal({"--kind", "bf16"}), HasSubstr("--kind"));
  EXPECT_THAT(refusal({"--choice", "go"}),
              HasSubstr("--choice is go, which is none of continue, stop"));
  EXPECT_THAT(refusal({"--one", "a", "--other", "b"}), HasSubstr("excludes"));
  EXPECT_THAT(refusal({"--also"}), HasSubstr("requires"));
  EXPECT_THAT(refusal({"--nope"}), HasSubstr("--nope"));
  EXPECT_EQ(run({"--number", "5", "--kind", "fp32", "--choice", "continue"}), 0);
  EXPECT_EQ(choice, 1);
}

TEST_F(CommandLineTest, MistakesAreSaidTogether) {
  const Verb verb = root_.add_verb("train", "Trains");
  verb.on_chosen([] { return 3; });
  int steps = 0, ranks = 0;
  double rate = 0;
  std::string kind, out;
  verb.add_option("--steps", &steps).range(1, 5);
  verb.add_option("--ranks", &ranks).range(1, 16);
  verb.add_option("--rate", &rate);
  verb.add_option("--kind", &kind).one_of({"mixed", "fp32"});
  verb.add_option("--out", &out);
  EXPECT_EQ(refusal({"train", "--stpes", "5", "--steps", "five", "--ranks", "0", "--rate", "fast",
                     "--kind", "mixd", "--out", "a", "--out", "b", "more", "-x"}),
            "tool: --steps is five, which is no whole number\n"
            "tool: --ranks is 0, which is not from 1 to 16\n"
            "tool: --rate is fast, which is no number\n"
            "tool: --kind is mixd, which is none of mixed, fp32; did you mean mixed?\n"
            "tool: --out was given 2 times; give it once\n"
            "tool: --stpes is no option of train; did you mean --steps?\n"
            "tool: train does not take 'more'\n"
            "tool: -x is no option of train\n"
            "tool train --help says what there is\n");
  EXPECT_EQ(run({"train", "--steps", "5"}), 3) << "mistakes of another line are forgotten";
  EXPECT_THAT(refusal({"train", "--steps"}), HasSubstr("--steps needs a value behind it\n"));
  EXPECT_EQ(run({"train", "--steps", "x", "--help"}), 0);
}

TEST_F(CommandLineTest, NumbersThatDoNotFitAreRejectedAndNotChanged) {
  int64_t number = 0;
  std::optional<int64_t> maybe;
  uint64_t count = 0;
  root_.add_option("--number", &number);
  root_.add_option("--maybe", &maybe);
  root_.add_option("--count", &count);
  for (const char* name : {"--number", "--maybe", "--count"}) {
    EXPECT_THAT(refusal({name, "99999999999999999999"}), HasSubstr(name));
  }
  EXPECT_THAT(refusal({"--count", "-1"}),
              HasSubstr("--count is -1, which is not from 0 to 18446744073709551615"));
  EXPECT_EQ(run({"--number", "-9223372036854775808", "--count", "18446744073709551615"}), 0);
  EXPECT_EQ(number, INT64_MIN);
  EXPECT_EQ(count, UINT64_MAX);
}

TEST_F(CommandLineTest, AWordThatIsNoVerbIsNamed) {
  root_.require_verb();
  const Verb files = root_.add_verb("files", "About files");
  files.require_verb();
  files.add_verb("list", "Lists").on_chosen([] { return 0; });
  files.add_verb("show", "Shows").on_chosen([] { return 0; });
  EXPECT_THAT(refusal({"flies"}), HasSubstr("'flies' is no verb of tool; did you mean files?"));
  EXPECT_THAT(refusal({"files", "nonsense", "--all"}),
              HasSubstr("'nonsense' is no verb of files; its verbs are list, show"));
  EXPECT_THAT(refusal({"files", "list", "nonsense"}), Not(HasSubstr("no verb")));
}

TEST_F(CommandLineTest, WholeNumbersAreReadAsTargetsReadThem) {
  EXPECT_EQ(parse_int("16"), 16);
  EXPECT_EQ(parse_int("-1"), -1);
  for (const char* text : {"", "x", "1.5", "99999999999"}) {
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace hanji::cli
