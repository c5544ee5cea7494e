#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// The buffers that are there, in order of registration.
std::vector<NamedParameter> buffers_of(const torch::nn::Module& module);

/// One list after the other.
std::vector<NamedParameter> with_buffers(std::vector<NamedParameter> parameters,
                                         const std::vector<NamedParameter>& buffers);

/// What one rank finds wrong with a module before it is trained.
class Mistakes {
 public:
  /// Of several mistakes of one kind the first is told in full, the others by their parameter.
  void add(const std::string& kind, const std::string& parameter, const Status& mistake);
  /// Adds one if a strategy trains the parameter already.
  void add_if_taken(const NamedParameter& parameter, const std::string& caller);
  /// Adds one if the tensor is on the meta device, with nobody to say what it holds.
  void add_if_without_memory(const NamedParameter& tensor, const std::string& caller);
  std::vector<Status> all() const;

 private:
  struct Entry {
    std::string kind;
    Status first;
    std::vector<std::string> others;
  };
  std::vector<Entry> entries_;
};

/// Of a module whose parameters that learn shall lie in one flat buffer.
Mistakes flat_mistakes(const std::vector<NamedParameter>& parameters,
                       const std::vector<NamedParameter>& buffers, const std::string& caller);

/// What the options of every strategy say of stable bits.
struct StableOptions {
  std::string caller;  ///< Said in errors.
  Average average = Average::kMean;
  int64_t num_grains = 0;
  std::vector<layout::Range> owners = {};
};

/// Who of `num_ranks` owns which grain: even shares where nobody is named;
/// empty without grains.
///
/// Errors  throws kInvalidArgument for owners that do not fit grains or ranks,
/// kUnsupported for
///         Average::kWeighted.
std::vector<layout::Range> stable_owners(const StableOptions& options, int num_ranks);

/// Throws kUnsupported, with `remedy`, if sums of `dtype` depend on who adds
/// what.
void check_stable_sums(const std::string& caller, const std::string& parameter,
                       at::ScalarType dtype, const std::string& remedy);

/// Throws on every rank unless all have the same names, shapes and dtypes in one order, and no rank
/// has `mistakes` of its own about them. Says all that is wrong at once: a rank its own view, or
/// where it has nothing to say that of the first rank that has.
///
/// Errors  kMismatch where structures differ, else the code of the first mistake.
/// Cost    an all_gather of 8 bytes per tensor.
void check_same_structure(const std::vector<NamedParameter>& tensors, const comm::Group& group,
                          const Mistakes& mistakes = {});

/// Throws on every rank unless all give the same words about one option, and no rank has `mistakes`.
///
/// Errors  kMismatch where they differ, else the code of the first mistake.
void check_same_words(const std::string& option, const std::string& words, const comm::Group& group,
                      const Mistakes& mistakes = {});

/// Throws kMismatch on every rank unless all hold the same bytes. Cost: one pass over the tensors
/// and an all_gather of 8 bytes per tensor.
void check_same_values(const std::vector<NamedParameter>& tensors, const comm::Group& group);

/// Copies rank 0's bytes to every rank.
void broadcast_from_first(const std::vector<NamedParameter>& tensors, const comm::Group& group);

}  // namespace hanji::parallel
