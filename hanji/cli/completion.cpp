#include <iostream>
#include <memory>

#include "hanji/cli/completion_script.h"
#include "hanji/cli/verbs.h"

namespace hanji::cli {
namespace {

std::string script_for(const std::string& shell, const VerbDescription& command) {
  if (shell == "bash") return bash_completion(command);
  return shell == "fish" ? fish_completion(command) : zsh_completion(command);
}

}  // namespace

void add_completion(Verb command) {
  const Verb verb = command.add_verb("completion", "Print what completes this command in a shell");
  auto shell = std::make_shared<std::string>();
  verb.add_option("shell", shell.get(), "bash, fish or zsh")
      .type_name("SHELL")
      .one_of({"bash", "fish", "zsh"})
      .required();
  verb.footer(
      "Now: source <(hanji completion bash). For every shell that is started:\n"
      "bash: into ~/.local/share/bash-completion/completions/hanji\n"
      "fish: into ~/.config/fish/completions/hanji.fish\n"
      "zsh: into the file _hanji in a folder of $fpath");
  verb.on_chosen([=] {
    std::cout << script_for(*shell, command.describe());
    return 0;
  });
}

}  // namespace hanji::cli
