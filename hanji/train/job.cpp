#include "hanji/train/job.h"

#include "hanji/comm/heap.h"
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

Job assemble(const plan::Plan& plan, const comm::Group& group) {
  const plan::Config& config = plan.config;
  auto model = std::make_shared<models::GptImpl>(gpt_options(plan));
  auto replicas = parallel::data_parallel(*model, group,
                                          {.average = parallel::Average::kSum,
                                           .bucket_bytes = config.comm.bucket_bytes,
                                           .check_every = config.comm.check_every});
  const auto parameters = tensors_of(replicas.parameters());
  const layout::FlatLayout& flat = replicas.buckets().flat;
  parallel::move_into_flat(
      parameters, flat,
      group.heap().zeros({flat.count}, parameters[0].scalar_type(), "parameters"));
  model->set_gradient_slots(replicas.gradient_slots());
  parallel::FlatAdamW optimizer(parameters, flat, replicas.flat_gradients(),
                                {.beta1 = config.train.beta1,
                                 .beta2 = config.train.beta2,
                                 .weight_decay = config.train.weight_decay});
  return {std::move(model), std::move(replicas), std::move(optimizer), group};
}

}  // namespace hanji::train
