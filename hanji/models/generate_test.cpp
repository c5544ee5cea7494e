#include "hanji/models/generate.h"

#include <gmock/gmock.h>

#include "hanji/base/status.h"
#include "hanji/models/gpt.h"

namespace hanji::models {
namespace {

/// With the options that every test takes.
std::vector<int64_t> generate_tiny(GptImpl& model, const std::vector<int64_t>& prompt,
                                   GenerateOptions options) {
  options.block = 4;
  options.vocabulary = 5;
  return generate(model, prompt, options);
}

GptImpl tiny() {
  return GptImpl({.layers = 1, .heads = 1, .width = 8, .block = 4, .vocabulary = 5});
}

TEST(Generate, TheSameSeedGivesTheSameTokensAndAnotherOthers) {
  GptImpl model = tiny();
  const std::vector<int64_t> prompt{1, 2};
  const auto first = generate_tiny(model, prompt, {.num_tokens = 50, .seed = 3});
  EXPECT_EQ(first, generate_tiny(model, prompt, {.num_tokens = 50, .seed = 3}));
  EXPECT_NE(first, generate_tiny(model, prompt, {.num_tokens = 50, .seed = 4}));
  EXPECT_EQ(first.size(), 50u);
}

TEST(Generate, TheLikeliestIsTakenAtTemperature0AndForTopK1) {
  GptImpl model = tiny();
  const std::vector<int64_t> prompt{1};
  const auto greedy = generate_tiny(model, prompt, {.num_tokens = 20, .temperature = 0});
  EXPECT_EQ(greedy, generate_tiny(model, prompt, {.num_tokens = 20, .top_k = 1, .seed = 9}));
}

TEST(Generate, ALongPromptIsSeenThroughItsLastBlock) {
  GptImpl model = tiny();
  const std::vector<int64_t> window{0, 1, 2, 3};
  const std::vector<int64_t> with_past{4, 4, 0, 1, 2, 3};
  const GenerateOptions one{.num_tokens = 1, .temperature = 0};
  EXPECT_EQ(generate_tiny(model, window, one), generate_tiny(model, with_past, one));
}

TEST(Generate, LeavesTheModelInItsMode) {
  GptImpl model = tiny();
  model.train();
  generate_tiny(model, std::vector<int64_t>{1}, {.num_tokens = 1});
  EXPECT_TRUE(model.is_training());
}

TEST(Generate, RefusesAnEmptyPromptAndTokensOutsideTheVocabulary) {
  GptImpl model = tiny();
  EXPECT_THROW(generate_tiny(model, std::vector<int64_t>{}, {}), Error);
  EXPECT_THAT([&] { generate_tiny(model, std::vector<int64_t>{5}, {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("vocabulary of 5")));
}

TEST(Generate, RefusesANegativeOrInfiniteOptionByItsName) {
  GptImpl model = tiny();
  const auto refused = [&](GenerateOptions options, const std::string& words) {
    EXPECT_THAT([&] { generate_tiny(model, std::vector<int64_t>{1}, options); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
  };
  refused({.num_tokens = -1}, "num_tokens is -1");
  refused({.top_k = -5}, "top_k is -5");
  refused({.temperature = std::numeric_limits<double>::quiet_NaN()}, "temperature is nan");
  refused({.temperature = std::numeric_limits<double>::infinity()}, "temperature is inf");
}

}  // namespace
}  // namespace hanji::models
