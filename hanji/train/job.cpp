#include "hanji/train/job.h"

#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/train/gpt_options.h"

namespace hanji::train {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<parallel::NamedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : parameters) tensors.push_back(entry.tensor);
  return tensors;
}

}  // namespace

parallel::DataParallelOptions reduction(const plan::Plan& plan) {
  const plan::TrainConfig& train = plan.config.train;
  parallel::DataParallelOptions options{.average = parallel::Average::kSum,
                                        .bucket_bytes = plan.config.comm.bucket_bytes,
                                        .check_every = plan.config.comm.check_every};
  if (train.bits != plan::Bits::kStable) return options;
  options.num_grains = train.global_batch / train.grain;
  options.owners = plan::grain_owners(plan.shares, train.grain);
  return options;
}

Job assemble(const plan::Plan& plan, const comm::Group& group) {
  return assemble(plan, group, reduction(plan));
}

Job assemble(const plan::Plan& plan, const comm::Group& group,
             const parallel::DataParallelOptions& options) {
  const plan::Config& config = plan.config;
  const c10::Device device = comm::device_of(group);
  auto model = std::make_shared<models::GptImpl>(gpt_options(plan, device));
  auto replicas = parallel::data_parallel(*model, group, options);
  const auto parameters = tensors_of(replicas.parameters());
  const layout::FlatLayout& flat = replicas.buckets().flat;
  parallel::move_into_flat(
      parameters, flat,
      comm::zeros_on(device, {flat.count}, parameters[0].scalar_type(), group, "parameters"));
  model->set_gradient_slots(replicas.gradient_slots());
  std::optional<GrainSums> totals;
  if (config.train.bits == plan::Bits::kStable) {
    totals.emplace(replicas.grain_tree(), group, kNumTotals);
  }
  parallel::FlatAdamW optimizer(parameters, flat, replicas.flat_gradients(),
                                {.beta1 = config.train.beta1,
                                 .beta2 = config.train.beta2,
                                 .weight_decay = config.train.weight_decay});
  return {std::move(model), std::move(replicas), std::move(optimizer), group,
          device,           std::move(totals)};
}

}  // namespace hanji::train
