#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/generate.h"

namespace hanji::cli {

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
    options->checkpoint = *checkpoint;
    std::cout << train::generate(*options).or_throw() << "\n";
    return 0;
  });
}

}  // namespace hanji::cli
