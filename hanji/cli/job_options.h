#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hanji/cli/command_line.h"
#include "hanji/plan/load_config.h"
#include "hanji/train/check_job.h"

namespace hanji::cli {

/// What --ranks and --out mean to a verb.
struct JobTexts {
  std::string ranks = "processes; default: one per usable core (run.ranks)";
  std::string ranks_type = "N";
  std::string out = "folder of the run, new or empty unless --resume (run.out)";
};

/// The flags of verbs that describe a job (train, plan): a file, a few shortcuts, and --set.
class JobOptions {
 public:
  /// Adds the flags to `verb`. The object must outlive the parsing.
  void add_to(Verb verb, const JobTexts& texts = {});

  /// What --ranks and --out were given, which load() then leaves out: a verb that has several runs sets theirs.
  std::optional<std::string> take_ranks() { return std::exchange(ranks_, std::nullopt); }
  std::optional<std::string> take_out() { return std::exchange(out_, std::nullopt); }

  /// File and overrides as they were typed; shortcuts come after --set in weight.
  plan::LoadedConfig load() const { return load(plan::ConfigSources()); }
  /// The same over another base than the defaults.
  plan::LoadedConfig load(plan::ConfigSources sources) const;

  /// What --set was given, as it was typed.
  const std::vector<std::string>& assignments() const { return assignments_; }

 private:
  std::string file_;
  std::vector<std::string> assignments_;
  std::optional<std::string> text_, tokens_, data_, device_, ranks_, mesh_, steps_, profile_, seed_,
      out_;
};

/// Prints every key with its value and origin, or the mistakes. Result: the exit code.
int print_with_origins(const plan::LoadedConfig& loaded);

/// Prints every mistake to stderr.
/// Result  the exit code: 0 if there was none.
int report_mistakes(const plan::LoadedConfig& loaded);
int report_mistakes(const train::CheckedJob& job);

}  // namespace hanji::cli
