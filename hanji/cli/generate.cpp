#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "hanji/cli/notify.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/generate.h"

namespace hanji::cli {
namespace {

void check(const train::GenerateOptions& options) {
  OptionMistakes mistakes;
  const auto count = [&](const char* name, int64_t value, const char* way_out) {
    if (value < 0) mistakes.add(fmt::format("{} is {}; {}", name, value, way_out));
  };
  count("--tokens", options.num_tokens, "give 0 or more");
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    mistakes.add(
        fmt::format("--temperature is {}; give 0 for the likeliest token, or a positive number",
                    options.temperature));
  }
  count("--top-k", options.top_k, "give 0 to choose among all tokens, or a positive number");
  mistakes.throw_if_any();
}

}  // namespace

void add_generate(Verb command) {
  const Verb verb = command.add_verb("generate", "Continue a prompt with a trained model");
  auto options = std::make_shared<train::GenerateOptions>();
  auto checkpoint = std::make_shared<std::string>();
  verb.add_option("--checkpoint", checkpoint.get(), "a run's folder, or one of its checkpoints")
      .type_name("DIR")
      .required();
  verb.add_option("--prompt", &options->prompt, "text to continue").type_name("TEXT");
  verb.add_option("--tokens", &options->num_tokens, "tokens to add").type_name("N").show_default();
  verb.add_option("--temperature", &options->temperature, "0 takes the likeliest token")
      .show_default();
  verb.add_option("--top-k", &options->top_k, "choose among the k likeliest; 0: among all")
      .show_default();
  verb.add_option("--seed", &options->seed, "the same seed, the same text").show_default();
  verb.on_chosen([=] {
    check(*options);
    options->checkpoint = *checkpoint;
    options->on_refused = notify_unusable;
    std::cout << train::generate(*options).or_throw() << "\n";
    return 0;
  });
}

}  // namespace hanji::cli
