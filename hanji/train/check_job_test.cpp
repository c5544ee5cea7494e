#include "hanji/train/check_job.h"

#include <gmock/gmock.h>

#include <fstream>

#include "hanji/data/beton_writer.h"
#include "hanji/data/source.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class CheckJob : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << content;
    return (folder_.path() / name).native();
  }
  CheckedJob check(const std::vector<std::string>& assignments) const {
    std::vector<plan::Override> overrides;
    for (const std::string& one : assignments) overrides.push_back({one, "--set"});
    return check_job(plan::load_config({{}, overrides}), FolderUse::kNone);
  }
  /// The only mistake of a job that must not start.
  std::string mistake(const std::vector<std::string>& assignments) const {
    const CheckedJob job = check(assignments);
    EXPECT_NE(job.code, Code::kOk);
    EXPECT_EQ(job.loaded.mistakes.size(), 1u);
    return job.loaded.mistakes.empty() ? "" : job.loaded.mistakes[0].to_string();
  }

  test::TemporaryFolder folder_;
};

TEST_F(CheckJob, ATextThatHasNothingToPredictIsRefusedBeforeRanksStart) {
  const std::string same = write("same.txt", std::string(5000, 'a'));
  EXPECT_THAT(mistake({"data.text=" + same, "model.preset=nano"}),
              AllOf(HasSubstr("data.text: "), HasSubstr("same.txt is 5000 characters, each of them "
                                                        "\"a\", so that there is nothing")));
  EXPECT_EQ(check({"data.text=" + same, "model.preset=nano", "data.vocabulary=byte"}).code,
            Code::kOk);
  for (const char* vocabulary : {"data.vocabulary=char", "data.vocabulary=byte"}) {
    EXPECT_THAT(mistake({"data.text=" + write("one.txt", "a"), vocabulary}),
                HasSubstr("data.text: "));
  }
}

TEST_F(CheckJob, TokensThatAreAllZeroAreRefusedUnlessTheVocabularyIsSet) {
  const std::string path = write("zero.bin", std::string(10'000, '\0'));
  EXPECT_THAT(mistake({"data.tokens=" + path, "model.preset=nano"}),
              AllOf(HasSubstr("data.tokens: "), HasSubstr("holds no token but 0")));
  EXPECT_EQ(check({"data.tokens=" + path, "model.preset=nano", "model.vocabulary=7"}).code,
            Code::kOk);
}

TEST_F(CheckJob, APrefixOfMegatronsOpensBothOfItsFiles) {
  constexpr int64_t kTokens = 5000;
  std::vector<uint16_t> tokens(kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i % 50);
  write("corpus.bin", bytes_of(tokens));
  write("corpus.idx", std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + '\x08' +
                          bytes_of<uint64_t>({1, 2}) + bytes_of<int32_t>({kTokens}) +
                          bytes_of<int64_t>({0}) + bytes_of<int64_t>({0, 1}));
  const std::string prefix = (folder_.path() / "corpus").native();
  const CheckedJob job = check({"data.tokens=" + prefix, "model.preset=nano"});
  ASSERT_THAT(job.loaded.mistakes, IsEmpty()) << job.loaded.mistakes[0].to_string();
  EXPECT_EQ(job.dataset->num_ids, 50);
  EXPECT_THAT(mistake({"data.tokens=" + prefix + ".none"}),
              AllOf(HasSubstr("data.tokens: "), HasSubstr("corpus.none"),
                    testing::Not(testing::ContainsRegex("check the path.*check the path"))));
}

TEST_F(CheckJob, WhatOfATextIsLeftOutIsNoted) {
  const std::string path = write("marked.txt", "\xEF\xBB\xBF" + std::string(3000, 'a') + "b");
  const CheckedJob job = check({"data.text=" + path, "model.preset=nano"});
  ASSERT_EQ(job.code, Code::kOk);
  EXPECT_EQ(job.dataset->num_ids, 2) << "the mark is no character";
  EXPECT_THAT(job.dataset->notes, ElementsAre(HasSubstr("left out the byte order mark")));
}

TEST_F(CheckJob, AFileOfOneClassIsRefusedByItsKey) {
  const auto path = folder_.path() / "one.beton";
  auto writer = data::BetonWriter::create(
                    path, {{"image", data::BetonType::kRgbImage}, {"label", data::BetonType::kInt}},
                    {.num_samples = 20})
                    .or_throw();
  const std::vector<std::byte> pixels(3 * 8 * 8);
  for (int i = 0; i < 20; ++i) {
    const data::BetonValue values[] = {
        {.mode = data::BetonImageMode::kRaw, .width = 8, .height = 8, .bytes = pixels},
        {.integer = 0}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  EXPECT_THAT(mistake({"model.preset=resnet-tiny", "data.files=" + path.native()}),
              AllOf(HasSubstr("data.files: "),
                    HasSubstr("one.beton: all of its labels are 0, which is one class")));
}

}  // namespace
}  // namespace hanji::train
