#include "hanji/train/resume.h"

#include <gmock/gmock.h>

#include <fstream>

#include "hanji/base/atomic_file.h"
#include "hanji/base/json.h"
#include "hanji/checkpoint/save.h"
#include "hanji/compute/measure.h"
#include "hanji/data/samples.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FindSavedRun : public testing::Test {
 protected:
  fs::path out() const { return folder_.path() / "run"; }
  test::TemporaryFolder folder_;
};

TEST_F(FindSavedRun, FindsNothingInANewFolderOrInAnEmptyOne) {
  EXPECT_FALSE(find_saved_run(out()).or_throw().has_value());
  fs::create_directories(out());
  EXPECT_FALSE(find_saved_run(out()).or_throw().has_value());
  for (const char* part : {"trace", "logs", "checkpoints"}) fs::create_directory(out() / part);
  EXPECT_FALSE(find_saved_run(out()).or_throw().has_value());
}

TEST_F(FindSavedRun, FindsNothingWhereARunWasKilledAsItWroteItsPlan) {
  fs::create_directories(out() / "logs");
  const auto plan = base::AtomicFile::create(out() / "plan.json").or_throw();
  EXPECT_FALSE(find_saved_run(out()).or_throw().has_value());
}

TEST_F(FindSavedRun, RefusesAFolderThatIsNoRun) {
  fs::create_directories(out());
  std::ofstream(out() / "precious") << "x";
  const Status status = find_saved_run(out()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("neither a checkpoint nor the plan of a run"));
  EXPECT_FALSE(find_saved_run(out() / "precious").ok());
}

TEST_F(FindSavedRun, NeverBeginsAnewOverDamagedCheckpoints) {
  const fs::path folder = out() / "checkpoints";
  ASSERT_TRUE(checkpoint::save_checkpoint({.folder = folder}, {}, {.step = 4}).ok());
  fs::resize_file(folder / "step_00000004" / "manifest.json", 10);
  const Status status = find_saved_run(out()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("none of 1 checkpoint is good"));
}

class CheckSameData : public testing::Test {
 protected:
  static Dataset open(const fs::path& path) {
    plan::DataConfig config;
    config.text = path.string();
    return open_dataset(config, 8, plan::kAuto).or_throw();
  }
  fs::path text(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.path() / name) << content;
    return folder_.path() / name;
  }
  static std::string job_of(const Dataset& dataset) {
    base::Json job;
    job["text_checksum"] = dataset.samples->checksum();
    job["num_tokens"] = dataset.tokens->tokens().num_tokens();
    job["vocabulary"] = base::parse_json(dataset.vocabulary->to_json()).or_throw();
    return base::dump(job);
  }
  static std::string repeated(const std::string& word) {
    std::string all;
    for (int i = 0; i < 100; ++i) all += word;
    return all;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CheckSameData, TakesTheSameBytesUnderAnotherName) {
  const std::string job = job_of(open(text("a", repeated("abcab "))));
  EXPECT_TRUE(check_same_data(job, open(text("b", repeated("abcab ")))).ok());
}

TEST_F(CheckSameData, SaysWhatHasChanged) {
  const std::string job = job_of(open(text("a", repeated("abcab "))));
  EXPECT_THAT(check_same_data(job, open(text("b", repeated("abcba ")))).message(),
              HasSubstr("has changed: it has 600 tokens, the run's had 600; its checksum is"));
  EXPECT_THAT(check_same_data(job, open(text("c", repeated("abz ")))).message(),
              HasSubstr("alphabet has 4 characters, the run's 4; new: \"z\"; gone: \"c\"; go on"));
  EXPECT_THAT(check_same_data(job, open(text("d", repeated("abcdefghi ")))).message(),
              HasSubstr("new: \"d\", \"e\", \"f\", \"g\", \"h\" and 1 more; gone: none"));
}

/// The reason is the text, not the vocabulary that was chosen for it or what is too short now.
TEST_F(CheckSameData, AChangedTextIsTheReasonThatItsModelDoesNotFit) {
  const fs::path path = text("a", repeated("abcab "));
  SavedRun saved{.plan = {}, .job = job_of(open(path))};
  saved.plan.config.model = {.layers = 1, .heads = 1, .width = 8, .block = 8, .vocabulary = 4};
  saved.plan.config.data.text = path.string();
  const plan::LoadedConfig asked{.config = saved.plan.config};
  for (const std::string& changed : {repeated("abcd "), std::string("abc ")}) {
    text("a", changed);
    EXPECT_THAT(plan_resumed(saved, asked).status().message(),
                AllOf(HasSubstr("has changed: it"), Not(HasSubstr("set model."))))
        << changed;
  }
}

/// The run is from a processor that rounds float32 products to bf16, or that does not: the other kind than this.
TEST(PlanResumed, RefusesProductsOfAnotherToleranceThanTheRunHad) {
  const bool rounds_here = compute::error_of_small_products(compute::Gemm::kOneDnn) > 1e-4;
  SavedRun saved{.plan = {}};
  saved.plan.kernels.gemm = compute::Gemm::kOneDnn;
  saved.plan.kernels.products =
      rounds_here ? compute::Products::kHighest : compute::Products::kMedium;
  const Status status = plan_resumed(saved, {.config = saved.plan.config}).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the saved run's kernels"),
                                      HasSubstr(name_of(saved.plan.kernels.products))));
}

}  // namespace
}  // namespace hanji::train
