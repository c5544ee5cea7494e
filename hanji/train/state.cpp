#include "hanji/train/state.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "hanji/base/json.h"
#include "hanji/base/version.h"
#include "hanji/checkpoint/hash.h"
#include "hanji/data/source.h"
#include "hanji/layers/model.h"

namespace hanji::train {

JobView view_of(const Job& job) { return view_of(*job.model, job.strategy->state()); }

JobView view_with_gradients(const Job& job) {
  const FlatState state = job.strategy->state();
  return view_of(*job.model, {.layout = state.layout,
                              .gradients = job.strategy->gradients(),
                              .first_moment = state.first_moment,
                              .second_moment = state.second_moment,
                              .num_updates = state.num_updates});
}

JobTensors tensors_of(const Job& job) {
  JobView view = view_of(job);
  JobTensors tensors{.model = model_of(view), .optimizer = std::move(view.optimizer)};
  for (auto* entries : {&tensors.model, &tensors.optimizer}) {
    for (checkpoint::TensorEntry& entry : *entries) entry.tensor = entry.tensor.cpu();
  }
  return tensors;
}

void put_back(Job& job, const JobTensors& tensors) {
  if (job.device.is_cpu()) return;
  const at::NoGradGuard no_grad;
  const JobView own = view_of(job);
  const std::vector<checkpoint::TensorEntry> model = model_of(own);
  for (size_t i = 0; i < model.size(); ++i) {
    at::Tensor(model[i].tensor).copy_(tensors.model[i].tensor);
  }
  for (size_t i = 0; i < own.optimizer.size(); ++i) {
    at::Tensor(own.optimizer[i].tensor).copy_(tensors.optimizer[i].tensor);
  }
}

Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint) {
  HANJI_ASSIGN_OR_RETURN(const auto saved, checkpoint::open_checkpoint(checkpoint));
  const JobTensors tensors = tensors_of(job);
  HANJI_RETURN_IF_ERROR(checkpoint::copy_into(saved.model, tensors.model).at(checkpoint.native()));
  HANJI_RETURN_IF_ERROR(
      checkpoint::copy_into(saved.optimizer, tensors.optimizer).at(checkpoint.native()));
  put_back(job, tensors);
  job.strategy->set_num_updates(tensors.optimizer.front().tensor.item<int64_t>());
  return saved.manifest.step;
}

JobHashes hashes_of(const JobTensors& tensors) {
  const auto model = checkpoint::views_of(tensors.model).or_throw();
  const auto optimizer = checkpoint::views_of(tensors.optimizer).or_throw();
  return {.parameters = checkpoint::state_hash(model, {}),
          .state = checkpoint::state_hash(model, optimizer)};
}

checkpoint::Manifest describe_state(const plan::Plan& plan, const Dataset& dataset,
                                    int64_t steps_done) {
  base::Json job;
  job["hash"] = plan.job_hash;
  job["seed"] = plan.config.train.seed;
  job["grain"] = plan.config.train.grain;
  job["text_checksum"] = dataset.samples->checksum();
  job["vocabulary"] = dataset.vocabulary
                          ? base::parse_json(dataset.vocabulary->to_json()).or_throw()
                          : base::Json();
  return {.step = steps_done,
          .num_samples = steps_done * plan.config.train.global_batch,
          .job = job.dump(),
          .plan = plan::to_json(plan),
          .writer = std::string(base::version())};
}

Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const base::Json job, base::parse_json(manifest.job));
  const auto found = job.find("vocabulary");
  if (found == job.end()) return base::corrupt("the manifest's job names no vocabulary");
  if (found->is_null()) return std::optional<data::Vocabulary>();
  HANJI_ASSIGN_OR_RETURN(auto vocabulary, data::Vocabulary::from_json(found->dump()));
  return std::optional<data::Vocabulary>(std::move(vocabulary));
}

}  // namespace hanji::train
