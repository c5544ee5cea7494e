#include "hanji/train/observe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <span>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/checkpoint/safetensors.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/layers/model.h"
#include "hanji/layout/part.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::train {
namespace {

using report::Quantity;

/// Before names in files.
constexpr std::string_view kGradientPrefix = "gradient.", kTotalPrefix = "total.";

std::span<const std::byte> bytes_of(const at::Tensor& on_the_host) {
  return {static_cast<const std::byte*>(on_the_host.const_data_ptr()), on_the_host.nbytes()};
}

at::Tensor on_the_host(const at::Tensor& tensor) { return tensor.detach().cpu().contiguous(); }

void add_group(checkpoint::StateHash& hash, std::vector<StateTensor> tensors,
               const WholeOf& whole_of) {
  std::ranges::sort(tensors, {}, &StateTensor::name);
  hash.begin_group(tensors.size());
  for (const StateTensor& one : tensors) {
    const at::Tensor whole = on_the_host(whole_of(one));
    hash.begin_tensor(one.name, checkpoint::dtype_of(whole), whole.sizes().vec());
    hash.add(bytes_of(whole));
  }
}

/// Of one parameter what a state has.
class ParameterState {
 public:
  ParameterState(const FlatState& state, size_t index, layout::Placement placement)
      : state_(state),
        like_(state.parameters[index].tensor.detach()),
        name_(state.parameters[index].name),
        range_{state.layout.offsets[index],
               state.layout.offsets[index] + state.layout.sizes[index]},
        placement_(std::move(placement)) {
    if (!state.held) return;
    const auto found = std::ranges::find_if(*state.held, [&](const HeldRange& one) {
      return range_.begin <= one.range.begin && one.range.begin < range_.end;
    });
    held_ = found != state.held->end() ? *found : HeldRange{{range_.begin, range_.begin}, {}, {}};
  }

  StateTensor parameter() const {
    if (!parallel::is_without_memory(like_)) return {name_, like_, placement_};
    return held(name_, held_->parameters);
  }

  StateTensor moment(size_t index) const {
    const auto& [moment, flat] = state_.moments[index];
    const std::string name = moment + "." + name_;
    if (held_) return held(name, held_->moments.empty() ? at::Tensor() : held_->moments[index]);
    return {name, flat.slice(0, range_.begin, range_.end).view(like_.sizes()), placement_};
  }

 private:
  StateTensor held(const std::string& name, const at::Tensor& values) const {
    const layout::Range own{held_->range.begin - range_.begin, held_->range.end - range_.begin};
    const std::string why = name + " lies in shards that ranks hold; take whole_of()";
    return {.name = name,
            .tensor = parallel::without_memory(like_.sizes(), like_.options(), why),
            .placement = placement_,
            .held = HeldElements{own, values.defined() ? values : at::empty({0}, like_.options())}};
  }

  const FlatState& state_;
  const at::Tensor like_;
  const std::string& name_;
  const layout::Range range_;
  const layout::Placement placement_;
  std::optional<HeldRange> held_;
};

/// As a tensor, so that it is kept and compared as others.
StateTensor number(const std::string& name, double value) {
  return {name, at::full({1}, value, at::kDouble)};
}

/// A tensor of a file.
struct KeptTensor {
  std::string name;
  DType dtype;
  StateTensor tensor;
};

}  // namespace

std::vector<int64_t> StateTensor::whole_shape() const {
  return layout::whole_shape(placement, tensor.sizes().vec()).or_throw();
}

std::vector<at::Tensor> by_parameter(const at::Tensor& flat, const layout::FlatLayout& layout,
                                     const std::vector<parallel::NamedParameter>& parameters) {
  std::vector<at::Tensor> pieces;
  for (size_t i = 0; i < parameters.size(); ++i) {
    pieces.push_back(
        flat.narrow(0, layout.offsets[i], layout.sizes[i]).view(parameters[i].tensor.sizes()));
  }
  return pieces;
}

JobView view_of(const layers::Model& model, const FlatState& state) {
  const layout::Cut cut = model.cut();
  JobView view;
  for (const auto& item : model.named_buffers()) view.buffers.push_back({item.key(), item.value()});
  view.optimizer.push_back({"step", at::scalar_tensor(state.num_updates, at::kLong)});
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    const std::string& name = state.parameters[i].name;
    layout::Placement placement;
    if (cut.degree > 1) placement = layout::placement_of(cut.placements, name).or_throw();
    const ParameterState one(state, i, placement);
    view.parameters.push_back(one.parameter());
    if (!state.gradients.empty()) {
      view.gradients.push_back({name, state.gradients[i], placement});
    }
    for (size_t k = 0; k < state.moments.size(); ++k) view.optimizer.push_back(one.moment(k));
  }
  return view;
}

std::vector<StateTensor> model_of(const JobView& view) {
  std::vector<StateTensor> model = view.parameters;
  model.insert(model.end(), view.buffers.begin(), view.buffers.end());
  return model;
}

checkpoint::StateHashes hashes_of(const std::vector<StateTensor>& model,
                                  const std::vector<StateTensor>& optimizer,
                                  const WholeOf& whole_of) {
  checkpoint::StateHash hash;
  add_group(hash, model, whole_of);
  checkpoint::StateHash of_model = hash;
  add_group(of_model, {}, whole_of);
  add_group(hash, optimizer, whole_of);
  return {of_model.hex(), hash.hex()};
}

void Observer::backward(report::BackwardPart of, const GradientName& name,
                        const at::Tensor& gradient) {
  // A sum of hashes: parameters come in the order in which backward reaches them.
  const std::array<uint64_t, 3> all = {base::xxh3(std::as_bytes(std::span(name.parameter))),
                                       static_cast<uint64_t>(name.layer),
                                       base::xxh3(bytes_of(on_the_host(gradient)))};
  backwards_[of] += base::xxh3(std::as_bytes(std::span(all)));
}

at::Tensor Observer::seen(const StateTensor& one, std::string_view prefix) {
  const at::Tensor whole = on_the_host(options_.whole_of(one));
  if (!options_.reference) return whole;
  return options_.reference->nearest(steps_done_, std::string(prefix) + one.name, whole);
}

void Observer::add(std::vector<report::Digest>& digests, Quantity quantity,
                   const std::vector<StateTensor>& tensors) {
  const bool are_gradients = quantity == Quantity::kGradient;
  for (const StateTensor& one : tensors) {
    const at::Tensor whole = seen(one, are_gradients ? kGradientPrefix : "");
    digests.push_back({quantity, one.name, base::xxh3(bytes_of(whole))});
  }
}

checkpoint::StateHashes Observer::hashes_of(const std::vector<StateTensor>& model,
                                            const std::vector<StateTensor>& optimizer) {
  return train::hashes_of(model, optimizer, [this](const StateTensor& one) { return seen(one); });
}

bool Observer::is_kept() const {
  return options_.keep_step == steps_done_ || !options_.reference_folder.empty();
}

Status Observer::keep(const JobView& job, const std::vector<StateTensor>& totals) {
  if (!is_kept()) return {};
  std::vector<StateTensor> all = model_of(job);
  const auto add_as = [&](std::string_view prefix, const std::vector<StateTensor>& tensors) {
    for (StateTensor one : tensors) {
      one.name.insert(0, prefix);
      all.push_back(std::move(one));
    }
  };
  const auto gradients = std::exchange(kept_gradients_, {});
  add_as(kGradientPrefix, gradients.empty() ? job.gradients : gradients);
  add_as("", job.optimizer);
  if (options_.reference_folder.empty()) return write(all, options_.keep_file);
  add_as(kTotalPrefix, totals);
  return write(all, Reference::file(options_.reference_folder, steps_done_));
}

Status Observer::write(const std::vector<StateTensor>& tensors,
                       const std::filesystem::path& path) const {
  std::vector<KeptTensor> kept;
  for (const StateTensor& one : tensors) {
    kept.push_back({one.name, checkpoint::dtype_of(one.tensor), one});
  }
  checkpoint::sort_for_file(kept);
  std::vector<checkpoint::TensorForm> forms;
  for (const auto& [name, dtype, one] : kept) forms.push_back({name, dtype, one.whole_shape()});
  std::optional<checkpoint::SafetensorsWriter> file;
  if (!path.empty()) {
    HANJI_ASSIGN_OR_RETURN(auto created, checkpoint::SafetensorsWriter::create(path, forms));
    file.emplace(std::move(created));
  }
  for (const KeptTensor& one : kept) {
    const at::Tensor whole = on_the_host(options_.whole_of(one.tensor));
    if (file) HANJI_RETURN_IF_ERROR(file->append(bytes_of(whole)));
  }
  return file ? file->finish() : Status();
}

void Observer::summed(const std::vector<StateTensor>& gradients) {
  steps_done_ = std::ssize(run_.steps);
  add(gradients_, Quantity::kGradient, gradients);
  if (!is_kept()) return;
  for (const StateTensor& one : gradients) {
    kept_gradients_.push_back({one.name, options_.whole_of(one).clone()});
  }
}

Status Observer::step(int64_t steps_done, const JobView& job, const StepTotals& totals) {
  steps_done_ = steps_done;
  report::ObservedStep noted{.step = steps_done,
                             .parameters_sha256 = hashes_of(model_of(job), {}).parameters};
  add(noted.digests, Quantity::kBuffer, job.buffers);
  if (steps_done > 0 && gradients_.empty()) add(gradients_, Quantity::kGradient, job.gradients);
  std::ranges::move(std::exchange(gradients_, {}), std::back_inserter(noted.digests));
  add(noted.digests, Quantity::kParameter, job.parameters);
  add(noted.digests, Quantity::kOptimizer, job.optimizer);
  std::vector<StateTensor> numbers;
  if (steps_done > 0) {
    numbers = {number("loss", totals.loss), number("gradient norm", totals.gradient_norm)};
  }
  for (const StateTensor& one : numbers) {
    const auto bits = std::bit_cast<uint64_t>(seen(one, kTotalPrefix).item<double>());
    noted.digests.push_back({Quantity::kTotal, one.name, bits});
  }
  noted.backwards = std::exchange(backwards_, {});
  run_.steps.push_back(std::move(noted));
  return keep(job, numbers);
}

report::ObservedRun Observer::finish(const JobView& job) {
  run_.state_sha256 = hashes_of(model_of(job), job.optimizer).state;
  if (options_.reference) run_.farthest = options_.reference->farthest();
  return std::move(run_);
}

}  // namespace hanji::train
