#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/generate.h"

namespace hanji::cli {

void add_generate(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("generate", "Continue a prompt with a trained model");
  auto options = std::make_shared<train::GenerateOptions>();
  auto checkpoint = std::make_shared<std::string>();
  verb->add_option("--checkpoint", *checkpoint, "a run's folder, or one of its checkpoints")
      ->type_name("DIR")
      ->required();
  verb->add_option("--prompt", options->prompt, "text to continue")->type_name("TEXT");
  verb->add_option("--tokens", options->num_tokens, "tokens to add")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0 takes the likeliest token")
      ->capture_default_str();
  verb->add_option("--top-k", options->top_k, "choose among the k likeliest; 0: among all")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "the same seed, the same text")->capture_default_str();
  verb->callback([=, &run] {
    run = [=] {
      options->checkpoint = *checkpoint;
      std::cout << train::generate(*options).or_throw() << "\n";
      return 0;
    };
  });
}

}  // namespace hanji::cli
