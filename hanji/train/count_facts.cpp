#include "hanji/train/count_facts.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "hanji/base/at_end.h"
#include "hanji/comm/dtype.h"
#include "hanji/compute/deferred.h"
#include "hanji/data/batch.h"
#include "hanji/layers/model.h"
#include "hanji/lens/cost.h"
#include "hanji/lens/observer.h"
#include "hanji/models/make.h"
#include "hanji/parallel/gradients/gradient_hook.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/model_family.h"
#include "hanji/train/make_model.h"
#include "hanji/train/meta_memory.h"
#include "hanji/train/private_memory.h"

namespace hanji::train {
namespace {

/// Two sizes tell what grows with the samples from what does not.
constexpr int64_t kFew = 2;
constexpr int64_t kMore = 4;

/// A collective of a layer, and whether the ranks of "cp" run it.
struct CountedCall {
  parallel::tensor::AxisCall of;
  bool is_context = false;
};

/// One layer in one pass.
struct LayerCount {
  std::vector<plan::Product> products;  ///< Of all samples.
  double elementwise_bytes = 0;
  int64_t kept = 0;
  int64_t flow = 0;
  int64_t peak = 0;  ///< In its backward, of everything.
  std::vector<CountedCall> calls;
  int64_t deferred = 0;  ///< Held by gradients of weights that a backward leaves.
  std::set<const c10::TensorImpl*> deferred_of;  ///< These weights.
};

/// Where the collectives of the pass that runs go.
using CallSink = std::function<void(CountedCall)>;

int64_t bytes_of(const layers::Flow& flow) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : flow) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Counts one forward and backward, by the layer that runs.
class Pass : public lens::Observer {
 public:
  Pass(layers::Model& model, CallSink& sink)
      : model_(model),
        sink_(sink),
        parameters_(parallel::learning_parameters(model)),
        counts_(static_cast<size_t>(model.num_layers())) {
    for (const auto& [name, one] : parameters_) {
      parallel::add_gradient_hook(one, {"count_facts"}, [one] { one.mutable_grad().reset(); });
    }
    sink_ = [this](CountedCall call) {
      counts_[static_cast<size_t>(layer_)].calls.push_back(std::move(call));
    };
  }
  ~Pass() override {
    sink_ = nullptr;
    for (const auto& one : parameters_) parallel::remove_gradient_hook(one.tensor);
  }

  std::vector<LayerCount> run(const layers::Batch& batch, std::vector<layers::LayerScope> scopes) {
    scopes.insert(scopes.begin(),
                  [this](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
                    return forward(layer, std::move(flow), run);
                  });
    const lens::Scope seen(*this);
    layers::Flow flow = model_.forward({0, model_.num_layers()}, {}, batch, scopes);
    const int64_t before = memory_.current_bytes();
    const layers::LossSum loss = model_.loss(std::move(flow), batch);
    counts_.back().kept += memory_.current_bytes() - before;
    memory_.begin_peak();
    loss.sum.backward();
    end_backward();
    return std::move(counts_);
  }

  /// The same with a backward that leaves the gradients of weights where it can.
  std::vector<LayerCount> run_deferring(const layers::Batch& batch,
                                        const std::vector<layers::LayerScope>& scopes) {
    const compute::DeferGradients deferring;
    deferring_ = &deferring;
    return run(batch, scopes);
  }

  void before(const lens::Operation& operation) override {
    flops_ = lens::flops(operation);
    is_cast_ = casts_a_parameter(operation);
    LayerCount& count = counts_[static_cast<size_t>(layer_)];
    if (flops_ > 0) return add_product(operation, count);
    count.elementwise_bytes += static_cast<double>(lens::moved_bytes(operation));
  }

  void after(const lens::Operation& operation) override {
    if (is_cast_) operation.for_each_output([this](const at::Tensor& one) { keep_cast(one); });
    if (flops_ > 0) return;
    counts_[static_cast<size_t>(layer_)].elementwise_bytes +=
        static_cast<double>(lens::moved_bytes(operation));
  }

 private:
  layers::Flow forward(int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    layer_ = layer;
    const int64_t before = memory_.current_bytes();
    layers::Flow next = run(std::move(flow));
    LayerCount& count = counts_[static_cast<size_t>(layer)];
    count.kept = memory_.current_bytes() - before;
    count.flow = bytes_of(next);
    for (const at::Tensor& one : next) {
      if (!one.requires_grad() || layer + 1 == model_.num_layers()) continue;
      one.register_hook([this, layer](const at::Tensor&) {
        if (layer + 1 == layer_) begin_backward(layer);
      });
    }
    return next;
  }

  void end_backward() {
    LayerCount& count = counts_[static_cast<size_t>(layer_)];
    count.peak = memory_.recent_peak_bytes();
    if (deferring_ == nullptr) return;
    std::set<const void*> seen;
    for (; num_deferred_ < deferring_->deferred.size(); ++num_deferred_) {
      const compute::DeferredGradient& one = deferring_->deferred[num_deferred_];
      const auto& leaf = dynamic_cast<torch::autograd::AccumulateGrad&>(*one.weight.function);
      count.deferred_of.insert(leaf.variable.unsafeGetTensorImpl());
      for (const at::Tensor& held : one.held) {
        const bool is_new = seen.insert(held.storage().unsafeGetStorageImpl()).second;
        if (is_new) count.deferred += static_cast<int64_t>(held.storage().nbytes());
      }
    }
  }

  /// A gradient of what `layer` has passed on is there, so the layers after it are done.
  void begin_backward(int64_t layer) {
    end_backward();
    memory_.begin_peak();
    layer_ = layer;
  }

  /// By the parameter that takes part: forward and backward of a layer have it in common.
  void add_product(const lens::Operation& operation, LayerCount& count) const {
    plan::Product product{.m = flops_ / 2, .count = 1};
    operation.for_each_input([&](const at::Tensor& tensor) {
      if (!is_parameter(tensor)) return;
      product.n = tensor.size(0);
      product.k = tensor.numel() / product.n;
    });
    product.m = flops_ / 2 / static_cast<double>(product.n * product.k);
    for (plan::Product& known : count.products) {
      if (known.n != product.n || known.k != product.k || product.n * product.k == 1) continue;
      known.count += product.flops() / known.flops() * known.count;
      return;
    }
    count.products.push_back(product);
  }

  bool is_parameter(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) return false;
    if (casts_.contains(tensor.storage().unsafeGetStorageImpl())) return true;
    return std::ranges::any_of(parameters_, [&](const parallel::NamedParameter& one) {
      return one.tensor.is_alias_of(tensor);
    });
  }

  bool casts_a_parameter(const lens::Operation& operation) const {
    if (operation.name() != "aten::to" && operation.name() != "aten::_to_copy") return false;
    return is_parameter(operation.arguments()[0].toTensor());
  }

  void keep_cast(const at::Tensor& cast) {
    const c10::Storage& storage = cast.storage();
    casts_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  }

  layers::Model& model_;
  CallSink& sink_;
  const std::vector<parallel::NamedParameter> parameters_;
  PrivateMemory memory_;
  std::vector<LayerCount> counts_;
  /// Parameters in the dtype of products. Weak, so that they end as in a step and no other gets their address.
  std::map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> casts_;
  int64_t layer_ = 0;
  double flops_ = 0;
  bool is_cast_ = false;
  const compute::DeferGradients* deferring_ = nullptr;
  size_t num_deferred_ = 0;
};

plan::Amount amount(int64_t few, int64_t more) {
  const int64_t per_sample = (more - few) / (kMore - kFew);
  return {.fixed = few - per_sample * kFew, .per_sample = per_sample};
}

/// What each layer's backward holds beside what it and those before it have kept.
std::vector<int64_t> beside_kept(const std::vector<LayerCount>& counts) {
  std::vector<int64_t> beside;
  int64_t kept = 0;
  for (const LayerCount& one : counts) {
    kept += one.kept;
    beside.push_back(std::max<int64_t>(0, one.peak - kept));
  }
  return beside;
}

/// Of a layer whose backward can be split; gradients that are not left are kept as they are.
std::optional<plan::Amount> for_weights(const layers::Model& model, int64_t layer,
                                        const LayerCount& few, const LayerCount& more) {
  if (few.deferred_of.empty()) return std::nullopt;
  plan::Amount kept = amount(few.deferred, more.deferred);
  for (const at::Tensor& one : model.layer_parameters(layer)) {
    if (!one.requires_grad() || few.deferred_of.contains(one.unsafeGetTensorImpl())) continue;
    kept.fixed += static_cast<int64_t>(one.nbytes());
  }
  return kept;
}

/// The calls of one layer in two passes, in the order in which they ran.
std::vector<plan::LayerCall> calls_of(const LayerCount& few, const LayerCount& more) {
  std::vector<plan::LayerCall> calls;
  for (size_t i = 0; i < few.calls.size(); ++i) {
    const auto& [routine, op, dtype, counts, ranks, blocks, copied] = few.calls[i].of;
    plan::LayerCall& call =
        calls.emplace_back(plan::LayerCall{.routine = routine,
                                           .op = op,
                                           .dtype = comm::to_dtype(dtype),
                                           .ranks = ranks,
                                           .blocks = blocks,
                                           .is_context = few.calls[i].is_context});
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      call.counts.push_back(amount(counts[rank], more.calls.at(i).of.counts.at(rank)));
    }
  }
  return calls;
}

std::vector<plan::Amount> copied_by(const LayerCount& few, const LayerCount& more) {
  std::vector<plan::Amount> copied;
  for (size_t i = 0; i < few.calls.size(); ++i) {
    if (few.calls[i].of.copied == 0) continue;
    copied.push_back(amount(few.calls[i].of.copied, more.calls.at(i).of.copied));
  }
  return copied;
}

plan::LayerFacts facts_of(const LayerCount& few, const LayerCount& more) {
  plan::LayerFacts facts{
      .name = {},
      .products = more.products,
      .elementwise_bytes = (more.elementwise_bytes - few.elementwise_bytes) / (kMore - kFew),
      .kept = amount(few.kept, more.kept),
      .flow = amount(few.flow, more.flow),
      .calls = calls_of(few, more),
      .copied = copied_by(few, more)};
  facts.elementwise_bytes = std::max(0.0, facts.elementwise_bytes);
  for (plan::Product& product : facts.products) product.m /= kMore;
  return facts;
}

/// Of the cut dimension, by part.
std::vector<int64_t> extents_of(const layout::Placement& placement, int degree) {
  const auto& segments = placement.segments;
  const int64_t whole = std::reduce(segments.begin(), segments.end());
  std::vector<int64_t> extents;
  for (int index = 0; index < degree; ++index) {
    int64_t& sum = extents.emplace_back();
    const auto ranges = layout::parts_of(placement, whole, index, degree).or_throw();
    for (const layout::Range& range : ranges) sum += range.size();
  }
  return extents;
}

/// A parameter of which `elements` are the part of `cut`, and the sizes of its other parts.
plan::ParameterFacts parameter_facts(const layout::Cut& cut, const std::string& name,
                                     int64_t elements, int64_t layer) {
  plan::ParameterFacts facts{elements, layer};
  const bool has_blocks =
      std::ranges::any_of(cut.placements, [](const auto& one) { return one.placement.blocks > 1; });
  if (cut.degree == 1 && !has_blocks) return facts;
  const layout::Placement placement = layout::placement_of(cut.placements, name).or_throw();
  if (!placement.is_cut()) return facts;
  const std::vector<int64_t> extents = extents_of(placement, cut.degree);
  const int64_t beside = elements / extents[cut.index];
  if (cut.degree > 1) facts.parts = extents;
  if (placement.blocks > 1) facts.blocks = extents_of(placement, placement.blocks);
  for (auto* sizes : {&facts.parts, &facts.blocks}) {
    for (int64_t& size : *sizes) size *= beside;
  }
  return facts;
}

/// Memory for all gradients, where a model writes them in training.
std::vector<at::Tensor> gradient_memory(const layers::Model& model) {
  std::vector<at::Tensor> slots;
  for (const auto& one : parallel::learning_parameters(model)) {
    slots.push_back(at::zeros_like(one.tensor.detach()));
  }
  return slots;
}

plan::ModelFacts count(layers::Model& model, const ReadSamples& read,
                       const std::vector<layers::LayerScope>& scopes, CallSink& sink) {
  const base::AtEnd restore([threads = at::get_num_threads()] { at::set_num_threads(threads); });
  at::set_num_threads(1);
  layers::Batch batch;
  const auto pass = [&](int64_t samples) {
    read(samples, batch);
    return Pass(model, sink).run(batch, scopes);
  };
  const auto deferring = [&](int64_t samples) {
    read(samples, batch);
    return Pass(model, sink).run_deferring(batch, scopes);
  };
  const std::vector<LayerCount> few_split = deferring(kFew);  // fills caches, too
  const std::vector<LayerCount> few = pass(kFew), more = pass(kMore);
  const bool splits = std::ranges::any_of(
      few_split, [](const LayerCount& one) { return !one.deferred_of.empty(); });
  const std::vector<LayerCount> more_split = splits ? deferring(kMore) : few_split;
  const layout::Cut cut = model.cut();
  plan::ModelFacts facts;
  const std::vector<int64_t> few_beside = beside_kept(few), more_beside = beside_kept(more);
  for (size_t i = 0; i < few.size(); ++i) {
    facts.layers.push_back(facts_of(few[i], more[i]));
    facts.layers.back().name = fmt::format("layer {}", i);
    facts.layers.back().backward = amount(few_beside[i], more_beside[i]);
    facts.layers.back().for_weights =
        for_weights(model, static_cast<int64_t>(i), few_split[i], more_split[i]);
  }
  for (const auto& [name, tensor] : parallel::learning_parameters(model)) {
    const int64_t first = model.layer_of(tensor);
    for (int64_t i = first + 1; i < model.num_layers(); ++i) {
      const auto read = model.layer_parameters(i);
      if (std::ranges::any_of(read, [&](const at::Tensor& one) { return one.is_same(tensor); })) {
        facts.layers[i].tied.push_back(std::ssize(facts.parameters));
      }
    }
    facts.parameters.push_back(parameter_facts(cut, name, tensor.numel(), first));
  }
  facts.targets_per_sample = batch.num_valid / kMore;
  facts.sample_bytes = static_cast<int64_t>(batch.inputs.nbytes() + batch.targets.nbytes()) / kMore;
  facts.num_statistics = model.num_statistics();
  facts.buffer_bytes = buffer_bytes(model);
  return facts;
}

/// What ranks of "cp" add up of the gradient of a parameter that "tp" cuts: each group has its own part.
void name_parts(const std::vector<plan::ParameterFacts>& parameters,
                std::vector<plan::LayerCall>& calls) {
  for (plan::LayerCall& call : calls) {
    if (call.blocks == 1) continue;
    const auto of = std::ranges::find_if(parameters, [&](const plan::ParameterFacts& one) {
      return !one.parts.empty() && call.counts[0] == plan::Amount{.fixed = one.elements};
    });
    if (of == parameters.end()) continue;
    call.counts.clear();
    for (const int64_t part : of->parts) call.counts.push_back({.fixed = part});
  }
}

/// Of the axis that cuts the model, the rank that has most.
parallel::tensor::Axis counted_axis(const plan::Config& config, CallSink& sink) {
  const auto degree = static_cast<int>(config.mesh.tp * config.mesh.axial);
  const auto blocks = static_cast<int>(config.train.cuts.features);
  const auto rows = static_cast<int>(config.train.cuts.tokens);
  const int most = config.mesh.axial > 1 ? (rows > 1 ? layout::largest_part(degree, rows) : 0)
                                         : layout::largest_part(degree, blocks);
  return parallel::tensor::Axis::silent(most, degree, [&](const auto& call) { sink({call}); })
      .in_blocks(blocks);
}

}  // namespace

plan::ModelFacts count_facts(const plan::Config& asked, const Workload& workload) {
  plan::Config config = asked;
  config.model = plan::resolved(config.model);
  if (config.model.vocabulary == plan::kAuto) config.model.vocabulary = workload.dataset.num_ids;
  const base::KernelChoice kernels{.precision = config.compute.dtype};
  const auto& [dataset, make] = workload;
  CallSink sink;
  const auto context = static_cast<int>(config.mesh.cp);
  const auto rows = static_cast<int>(config.train.cuts.tokens);
  const models::MakeOptions options{
      .kernels = kernels,
      .classes = dataset.num_ids,
      .axis = counted_axis(config, sink),
      .context = parallel::tensor::Axis::silent(rows > 1 ? layout::largest_part(context, rows) : 0,
                                                context, [&](const auto& call) {
                                                  sink({call, true});
                                                })};
  const auto model = make ? make(config, options) : models::make(config, options);
  const auto read = [&](int64_t samples, layers::Batch& batch) {
    data::read_first(*dataset.samples, samples, batch);
  };
  model->set_gradient_slots(gradient_memory(*model));
  plan::ModelFacts facts = count(*model, read, training_scopes(config, *model), sink);
  for (plan::LayerFacts& layer : facts.layers) {
    if (context > 1) name_parts(facts.parameters, layer.calls);
  }
  return facts;
}

namespace {

/// Blocks that are counted: the last one's sequences have no gradient, and all before it are alike.
constexpr int64_t kCountedBlocks = 2;

/// Of a model of an embedding, kCountedBlocks and a head, with `blocks` blocks, at least as many.
plan::ModelFacts with_blocks(const plan::ModelFacts& few, int64_t blocks) {
  const int64_t more = blocks - kCountedBlocks;
  plan::ModelFacts all = few;
  all.layers.insert(all.layers.begin() + 1, more, few.layers[1]);
  for (size_t i = 0; i < all.layers.size(); ++i) all.layers[i].name = fmt::format("layer {}", i);
  std::vector<plan::ParameterFacts> added;
  for (int64_t i = 1; i <= more; ++i) {
    for (plan::ParameterFacts one : few.parameters) {
      if (one.layer != 1) continue;
      one.layer += i;
      added.push_back(std::move(one));
    }
  }
  const auto is_behind = [](const plan::ParameterFacts& one) { return one.layer > 1; };
  const auto behind = std::ranges::find_if(all.parameters, is_behind);
  for (auto one = behind; one != all.parameters.end(); ++one) one->layer += more;
  all.parameters.insert(behind, added.begin(), added.end());
  return all;
}

}  // namespace

layers::Batch pairs_without_memory(const plan::DataConfig& data, int64_t samples) {
  const auto states = at::TensorOptions(at::kLong).device(c10::kMeta);
  const int64_t n = data.residues;
  const int64_t rows = plan::has_sequences(data.pairs) ? data.sequences : n;
  return {.inputs = at::zeros({samples, rows, n}, states),
          .targets = at::zeros({samples, n, n}, states),
          .positions = {0, samples},
          .num_valid = samples * n * n};
}

plan::ModelFacts count_pair_facts(plan::Config config, int64_t classes) {
  const MetaMemory counted;
  const int64_t blocks = config.model.layers;
  config.model.layers = std::min(blocks, kCountedBlocks);
  CallSink sink;
  const auto model = models::make(config, {.kernels = {.precision = config.compute.dtype},
                                           .classes = classes,
                                           .device = c10::kMeta,
                                           .axis = counted_axis(config, sink)});
  const auto read = [&](int64_t samples, layers::Batch& batch) {
    batch = pairs_without_memory(config.data, samples);
  };
  plan::ModelFacts few = count(*model, read, training_scopes(config, *model), sink);
  return blocks > kCountedBlocks ? with_blocks(few, blocks) : few;
}

plan::ModelFacts count_facts(layers::Model& model, const ReadSamples& read,
                             const std::vector<layers::LayerScope>& scopes) {
  CallSink sink;
  return count(model, read, scopes, sink);
}

}  // namespace hanji::train
