#include "hanji/train/job_operations.h"

#include "hanji/data/batch.h"
#include "hanji/train/make_model.h"
#include "hanji/train/operation_call.h"
#include "hanji/train/time_samples.h"

namespace hanji::train {

std::vector<RecordedOperation> own_operations(const TimingJob& job, int64_t samples,
                                              const CallPlace& place) {
  std::vector<RecordedOperation> all;
  for (plan::Operation& one : plan::operations_of(job.plan.model, samples)) {
    one.index = all.size();
    const auto [timed, scale] = part_within(one, place.max_bytes);
    all.push_back(
        {one, own_call(timed, job.plan.kernels, place.device), tensor_bytes(timed), scale});
  }
  return all;
}

layers::Batch first_batch(const TimingJob& job, int64_t samples) {
  layers::Batch batch;
  const data::Loader loader = loader_of(job);
  const int64_t begin = loader.options().share.begin;
  data::read_batch(*job.workload.dataset.samples, loader, 0, {begin, begin + samples}, batch);
  return batch;
}

std::vector<RecordedOperation> seen_operations(const TimingJob& job, int64_t samples,
                                               c10::Device device) {
  const layers::Batch batch = first_batch(job, samples).to(device);
  const auto ranks = static_cast<int>(job.plan.config.mesh.axial);
  const auto axis = parallel::tensor::Axis::silent(0, ranks, [](const auto&) {});
  const auto model = make_model(job.plan, job.workload.make, device, {.cut = axis});
  return record_operations(*model, batch, training_scopes(job.plan.config, *model));
}

}  // namespace hanji::train
