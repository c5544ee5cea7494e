#include "hanji/base/env.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <set>

namespace hanji::base {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// Sets one variable for the length of a test.
class Scoped {
 public:
  Scoped(Variable variable, const char* value)
      : name_(spec_of(variable).name), old_(read(variable)) {
    if (value != nullptr) ::setenv(name_.c_str(), value, 1);
    if (value == nullptr) ::unsetenv(name_.c_str());
  }
  ~Scoped() {
    if (old_) ::setenv(name_.c_str(), old_->c_str(), 1);
    if (!old_) ::unsetenv(name_.c_str());
  }

 private:
  std::string name_;
  std::optional<std::string> old_;
};

TEST(Env, TheWholeEnvironmentHoldsWhatReadGives) {
  const Scoped scoped(Variable::kTmpDir, "/a=b");
  bool found = false;
  for (const NamedValue& one : read_environment()) {
    if (one.name == "TMPDIR") found = one.value == "/a=b";
  }
  EXPECT_TRUE(found);
}

TEST(Env, TheTableIsInTheOrderOfTheEnum) {
  EXPECT_EQ(spec_of(Variable::kRank).name, "RANK");
  EXPECT_EQ(spec_of(Variable::kSlurmProcId).name, "SLURM_PROCID");
  EXPECT_EQ(spec_of(Variable::kSlurmRestartCount).name, "SLURM_RESTART_COUNT");
  EXPECT_EQ(spec_of(Variable::kOmpiLocalSize).name, "OMPI_COMM_WORLD_LOCAL_SIZE");
  EXPECT_EQ(spec_of(Variable::kPmixNamespace).name, "PMIX_NAMESPACE");
  EXPECT_EQ(spec_of(Variable::kHanjiEndpoints).name, "HANJI_ENDPOINTS");
  EXPECT_EQ(spec_of(Variable::kHanjiSimd).name, "HANJI_SIMD");
  EXPECT_EQ(spec_of(Variable::kTmpDir).name, "TMPDIR");
  EXPECT_EQ(spec_of(Variable::kOmpNumThreads).name, "OMP_NUM_THREADS");
  EXPECT_EQ(spec_of(Variable::kMklCbwr).name, "MKL_CBWR");
  EXPECT_EQ(spec_of(Variable::kNvtxInjection64Path).name, "NVTX_INJECTION64_PATH");
}

TEST(Env, EveryVariableIsDocumentedOnce) {
  std::set<std::string_view> names;
  for (const VariableSpec& spec : variables()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.doc.empty()) << spec.name;
    EXPECT_FALSE(spec.default_value.empty()) << spec.name;
  }
}

TEST(Env, ReadTellsUnsetFromEmpty) {
  const Scoped unset(Variable::kNoColor, nullptr);
  EXPECT_EQ(read(Variable::kNoColor), std::nullopt);
  const Scoped empty(Variable::kNoColor, "");
  EXPECT_EQ(read(Variable::kNoColor), "");
}

TEST(Env, ReadIntWantsAWholeInteger) {
  const Scoped good(Variable::kRank, "12");
  EXPECT_EQ(*read_int(Variable::kRank), 12);
  for (const char* bad : {"12x", " 12", "1.5", "99999999999"}) {
    const Scoped scoped(Variable::kRank, bad);
    EXPECT_EQ(read_int(Variable::kRank).status().code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(read_int(Variable::kRank).status().message(), HasSubstr("RANK"));
    EXPECT_THAT(read_int(Variable::kRank).status().message(), HasSubstr(bad));
  }
  const Scoped unset(Variable::kRank, nullptr);
  EXPECT_EQ(read_int(Variable::kRank).status().code(), Code::kNotFound);
}

TEST(Env, ChildEnvironmentReplacesAndAddsButKeepsTheRest) {
  const Scoped rank(Variable::kRank, "1");
  const Scoped term(Variable::kTerm, "xterm");
  const std::vector<Setting> settings = {{Variable::kRank, "5"},
                                         {Variable::kHanjiEndpoints, "a=b"}};
  const std::vector<std::string> lines = child_environment(settings);
  EXPECT_THAT(lines, Contains("RANK=5").Times(1));
  EXPECT_THAT(lines, Not(Contains("RANK=1")));
  EXPECT_THAT(lines, Contains("HANJI_ENDPOINTS=a=b"));
  EXPECT_THAT(lines, Contains("TERM=xterm"));
}

TEST(Env, ALibraryLoadedLaterReadsWhatIsSetForIt) {
  EXPECT_TRUE(set_for_libraries("HANJI_TEST_OF_A_LIBRARY", "7").ok());
  EXPECT_STREQ(std::getenv("HANJI_TEST_OF_A_LIBRARY"), "7");
  ::unsetenv("HANJI_TEST_OF_A_LIBRARY");
  EXPECT_EQ(set_for_libraries("A=B", "7").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::base
