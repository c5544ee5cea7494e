#include "hanji/cli/job_options.h"

#include <iostream>

#include "hanji/cli/exit_code.h"

namespace hanji::cli {

void JobOptions::add_to(Verb verb, const JobTexts& texts) {
  verb.add_option("--config", &file_, "TOML file of the job").type_name("FILE");
  verb.add_option("--text", &text_, "text file or folder to learn (data.text)").type_name("PATH");
  verb.add_option("--tokens", &tokens_, "file of token ids to learn (data.tokens)")
      .type_name("FILE");
  verb.add_option("--data", &data_, ".beton file of samples to learn (data.files)")
      .type_name("FILE");
  verb.add_option("--device", &device_, "cpu, or cuda: a GPU for each rank (compute.device)")
      .type_name("DEVICE");
  verb.add_option("--ranks", &ranks_, texts.ranks).type_name(texts.ranks_type);
  verb.add_option("--mesh", &mesh_,
                  "degrees of its axes, dp=2,tp=2 ([mesh]); an unnamed dp takes the other ranks")
      .type_name("AXIS=N,...");
  verb.add_option("--steps", &steps_, "optimizer steps (train.steps)").type_name("N");
  verb.add_option("--profile", &profile_,
                  "steps whose operations are timed, such as 10-12 (train.profile)")
      .type_name("STEPS");
  verb.add_option("--seed", &seed_, "of weights, order and dropout (train.seed)").type_name("N");
  verb.add_option("--out", &out_, texts.out).type_name("DIR");
  verb.add_option("--set", &assignments_, "any key: --set model.preset=nano")
      .type_name("KEY=VALUE")
      .repeatable();
}

plan::LoadedConfig JobOptions::load(plan::ConfigSources sources) const {
  if (!file_.empty()) sources.file = file_;
  for (const std::string& assignment : assignments_) sources.overrides.push_back({assignment});
  const auto shortcut = [&](const std::optional<std::string>& value, const std::string& key,
                            const std::string& flag) {
    if (value) sources.overrides.push_back({key + "=" + *value, flag});
  };
  if (mesh_) sources.mesh = mesh_;
  shortcut(text_, "data.text", "--text");
  shortcut(tokens_, "data.tokens", "--tokens");
  shortcut(data_, "data.files", "--data");
  shortcut(device_, "compute.device", "--device");
  shortcut(ranks_, "run.ranks", "--ranks");
  shortcut(steps_, "train.steps", "--steps");
  shortcut(profile_, "train.profile", "--profile");
  shortcut(seed_, "train.seed", "--seed");
  shortcut(out_, "run.out", "--out");
  plan::LoadedConfig loaded = plan::load_config(sources);
  if (out_ && out_->empty()) {
    loaded.mistakes.push_back({.origin = {.source = "--out"},
                               .key = "run.out",
                               .message = "run.out is empty",
                               .suggestion = "name a folder, or leave --out out for runs/NUMBER"});
  }
  return loaded;
}

int report_mistakes(const plan::LoadedConfig& loaded) {
  for (const plan::ConfigMistake& mistake : loaded.mistakes) {
    std::cerr << "hanji: " << mistake.to_string() << "\n";
  }
  if (loaded.mistakes.empty()) return 0;
  std::cerr << "hanji: " << loaded.mistakes.size()
            << (loaded.mistakes.size() == 1 ? " mistake" : " mistakes")
            << " in the configuration; nothing was started\n";
  return kUsage;
}

int print_with_origins(const plan::LoadedConfig& loaded) {
  if (const int code = report_mistakes(loaded); code != 0) return code;
  std::cout << plan::print_config(loaded);
  return 0;
}

int report_mistakes(const train::CheckedJob& job) {
  report_mistakes(job.loaded);
  if (job.code == Code::kOk && job.dataset) {
    for (const std::string& note : job.dataset->notes) std::cerr << "hanji: note: " << note << "\n";
  }
  return exit_code(job.code);
}

}  // namespace hanji::cli
