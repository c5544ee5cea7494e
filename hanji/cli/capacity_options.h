#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hanji/base/status.h"
#include "hanji/cli/command_line.h"
#include "hanji/plan/capacity.h"
#include "hanji/plan/pair_capacity.h"

namespace hanji::cli {

/// The flags of `plan` for a model on devices that need not be there.
class CapacityOptions {
 public:
  /// Adds the flags to `verb`, which has those of JobOptions. Must outlive the parsing.
  void add_to(Verb verb);
  /// Adds those of the model alone; `use` says what --model is for.
  Option add_model(Verb verb, const std::string& use);

  /// Whether the user asks about a model of --model, and not about a job.
  bool asked() const { return !model_.empty(); }
  /// What was asked. `assignments`: those of --set, which may change a preset's sizes and data.
  /// Cost    a forward and backward of a preset that no formula describes, once per machine.
  /// Errors  invalid_argument for names that are unknown, sizes that contradict each other, and
  ///         flags of a job beside --model, all in one message.
  Result<plan::CapacityQuery> query(Verb verb, std::span<const std::string> assignments) const;
  /// Whether a model of pairs is asked about by its residues, on ranks that share out its rows.
  bool pairs() const { return residues_ > 0; }
  /// That, on 1, 2, 4 ... up to --ranks. Cost: counts one block for each, without its arithmetic. Errors: as query().
  Result<plan::PairCapacity> pair_capacity(Verb verb,
                                           std::span<const std::string> assignments) const;
  /// The model, of which `assignments` may change a preset's sizes. Cost and errors: as query().
  Result<plan::NamedModel> find(const plan::FactsOptions& options,
                                std::span<const std::string> assignments) const;
  const std::string& name() const { return model_; }
  int64_t micro_batch() const { return micro_batch_; }
  bool recompute() const { return recompute_; }
  /// Whether meshes are asked for, and which one of them; none: all.
  bool meshes() const { return meshes_; }
  /// Errors  invalid_argument for what is no axis with its degree.
  Result<std::optional<plan::MeshConfig>> only_mesh(Verb verb) const;
  /// Where a picture goes; empty: nowhere.
  const std::string& svg() const { return svg_; }

 private:
  /// A preset as it was published, with sizes and data changed by `assignments` and flags.
  Result<plan::Config> preset_config(std::span<const std::string> assignments) const;
  Result<plan::NamedModel> find_preset(const plan::FactsOptions& options,
                                       std::span<const std::string> assignments) const;

  std::string model_, states_ = "mixed", svg_, network_ = "25GB";
  int ranks_per_host_ = 8, fsdp_ = 0, servers_ = 1;
  int64_t micro_batch_ = 1, block_ = 0, global_batch_ = 0, residues_ = 0, sequences_ = 0;
  bool recompute_ = false, meshes_ = false;
};

}  // namespace hanji::cli
