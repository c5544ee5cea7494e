#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/layout/placement.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel::tensor {

/// How ranks divide a module of torch::nn among themselves.
enum class ModuleCut : uint8_t {
  kColumn,    ///< Linear, by outputs. The output stays cut, up to a row.
  kGathered,  ///< Linear, by outputs, which are gathered: every rank has the whole output.
  kRow,  ///< Linear, by inputs, which a column has cut; Embedding, by rows of its table. Summed.
};
/// By names of modules, in which "*" stands for any run of characters: "blocks.*.mlp.fc".
using ModuleCuts = std::map<std::string, ModuleCut>;

/// Cuts Linear and Embedding modules of an unmodified module: while this object lives, forward() of the
/// module is that of the whole one, on every rank of the group, and a rank has its parts of the weights.
///
///   hanji::CutModule cut(*net, mesh["tp"], {{"mlp.fc", kColumn}, {"mlp.out", kRow}});
///
/// Each weight is replaced by this rank's part, in its handle, under its name. The operations that read
/// it are then those of parallel/tensor's parts: column_linear, row_linear, embedding and the regions
/// around them. Between a column and its row only operations pass whose result for a part is the part of
/// the result: of elements, and views that keep the last dimension.
///
/// Result  outputs and gradients of the uncut module to rounding; gradients of parameters that are not
///         cut are identical on all ranks. On one rank nothing changes, bit for bit.
/// Order   ranks construct this with identical modules and cuts, before optimizers, replicas or shards
///         take the parameters, and run the same operations on identical inputs. Random numbers of
///         operations that are not cut (torch's Dropout) must be identical too: seed the ranks alike.
/// Cost    per pair of column and row one all_reduce of the output in forward, and one of the input in
///         backward; gathered: an all_gather and an all_reduce. 0.2 us per operation of this thread.
/// Errors  throws Error(kInvalidArgument) for all mistakes of the cuts at once: names that are no
///         Linear or Embedding, cuts or options that these cannot have, tied weights, more ranks than
///         rows. Throws Error(kUnsupported) from forward(), naming module and operation: for an operation
///         between column and row that is not among those above (a normalisation, a sum, dropout, whose
///         mask would be that of the part), for a size of the whole that forward() fixes there (a number of
///         heads), for one that reads a cut parameter otherwise, for a row whose input is whole, for a
///         column, or a whole Linear, whose input is cut, and for a parameter that torch::load() or
///         set_data() has unsharded again.
/// Limits  optimizers see parts, and so does hanji::clip_grad_norm(): use the member. Without gradients,
///         in no_grad mode, reading a part of a parameter is allowed.
/// Thread  forward() and backward() run on the constructing thread, which also destroys this; elsewhere
///         the weights are parts that nothing adds up.
/// Source  Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
class CutModule {
 public:
  CutModule(torch::nn::Module& module, const comm::Group& group, const ModuleCuts& cuts);
  ~CutModule();

  /// What this rank has of each parameter, by name.
  const layout::Cut& cut() const;

  /// hanji::clip_grad_norm() of the whole module: the parts of all ranks, and once what each rank has
  /// whole. Of the parameters that the module has now, those that have a gradient.
  ///
  /// Result  the norm before scaling, identical on all ranks; on one rank with the same bits.
  /// Order   collective, after backward(); with replicas after their sum. Ranks have gradients of the
  ///         same parameters.
  /// Cost    one pass over the gradients and an all_reduce of one number.
  double clip_grad_norm(double max_norm) const;

 private:
  class Observer;
  std::unique_ptr<Observer> observer_;
};

}  // namespace hanji::parallel::tensor
