#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// The defined buffers of a module, in order of registration.
std::vector<NamedParameter> buffers_of(const torch::nn::Module& module);

/// Both lists, parameters first.
std::vector<NamedParameter> with_buffers(std::vector<NamedParameter> parameters,
                                         const std::vector<NamedParameter>& buffers);

/// The mistakes that one rank finds in a module before training.
class Mistakes {
 public:
  /// Of several mistakes of one kind, the message has the first in full and the parameters of the others.
  void add(const std::string& kind, const std::string& parameter, const Status& mistake);
  /// Adds one if a strategy trains the parameter already.
  void add_if_taken(const NamedParameter& parameter, const std::string& caller);
  /// Adds one if the tensor is on the meta device without recorded initial values.
  void add_if_without_memory(const NamedParameter& tensor, const std::string& caller);
  /// Adds one if the buffer is a leaf that requires a gradient, which no strategy sums.
  void add_if_learning(const NamedParameter& buffer, const std::string& caller);
  /// Adds one if no collective sums the parameter's gradients.
  void add_if_no_sum(const NamedParameter& parameter, const std::string& caller);
  std::vector<Status> all() const;
  /// Throws all as one Error, if there are any; on this rank only.
  void refuse() const;

 private:
  struct Entry {
    std::string kind;
    Status first;
    std::vector<std::string> others;
  };
  std::vector<Entry> entries_;
};

/// What a strategy finds in a module that keeps whole parameters on every rank.
struct ModuleTensors {
  std::vector<NamedParameter> learning;  ///< Distinct parameters that require a gradient.
  std::vector<NamedParameter> frozen;    ///< The others that have memory.
  std::vector<NamedParameter> buffers;
  std::vector<NamedParameter> in_order;  ///< Both, then buffers, each in order of registration.
};
ModuleTensors tensors_of(const torch::nn::Module& module);

/// Mistakes of a module whose learning parameters will be in one flat buffer.
Mistakes flat_mistakes(const ModuleTensors& tensors, const std::string& caller);

/// The options of every strategy for stable bits.
struct StableOptions {
  std::string caller;  ///< Named in errors.
  Average average = Average::kMean;
  int64_t num_grains = 0;
  std::vector<layout::Range> owners = {};
};

/// The grains of each of `num_ranks` ranks: even shares if no owners are given; empty without grains.
///
/// Errors  throws kInvalidArgument for owners that do not fit grains or ranks, kUnsupported for
///         Average::kWeighted.
std::vector<layout::Range> stable_owners(const StableOptions& options, int num_ranks);

/// Throws kUnsupported, with `remedy`, if sums of `dtype` depend on the order of additions.
void check_stable_sums(const std::string& caller, const std::string& parameter,
                       at::ScalarType dtype, const std::string& remedy);

/// Throws on every rank unless all have the same names, shapes and dtypes in one order, and no rank
/// has `mistakes` of its own about them. Reports all mistakes at once: those of this rank, or if it has
/// none those of the first rank that has some.
///
/// Errors  kMismatch if structures differ, else the code of the first mistake.
/// Cost    an all_gather of 8 bytes per tensor.
void check_same_structure(const std::vector<NamedParameter>& tensors, const comm::Group& group,
                          const Mistakes& mistakes = {});

/// Throws on every rank unless all have the same text for one option, and no rank has `mistakes`.
///
/// Errors  kMismatch if the texts differ, else the code of the first mistake.
void check_same_words(const std::string& option, const std::string& words, const comm::Group& group,
                      const Mistakes& mistakes = {});

/// Throws on every rank if any rank of these groups, which ask one after another, has mistakes: its own,
/// or those of the first rank that has some.
void refuse_together(const Mistakes& mistakes, std::span<const comm::Group> groups);

/// Throws kMismatch on every rank unless all hold the same bytes. Cost: one pass over the tensors
/// and an all_gather of 8 bytes per tensor.
void check_same_values(const std::vector<NamedParameter>& tensors, const comm::Group& group);

/// Copies rank 0's bytes to every rank.
/// Errors  throws kMismatch if ranks give tensors of other names or sizes, or in another order.
void broadcast_from_first(const std::vector<NamedParameter>& tensors, const comm::Group& group);

}  // namespace hanji::parallel
