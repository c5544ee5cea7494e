#include "hanji/train/pair_picture.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "hanji/data/batch.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/axial/layouts.h"
#include "hanji/report/pair_map.h"

namespace hanji::train {
namespace {

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU, at::kDouble).contiguous();
  const auto* values = here.const_data_ptr<double>();
  return {values, values + here.numel()};
}

}  // namespace

std::string pair_picture(const Job& job, const Dataset& dataset, int row_blocks) {
  const at::NoGradGuard no_grad;
  layers::Batch batch;
  data::read_validation_batch(*dataset.samples, 1, {0, 1}, batch);
  job.model->eval();
  const layers::Flow flow = job.model->forward({0, job.model->num_layers()}, {},
                                               batch.to(job.device), job.strategy->scopes());
  job.model->train();
  at::Tensor logits = flow.at(0)[0];
  if (job.is_axial) {
    const auto axis = parallel::axial::Axis(*job.peers).in_blocks(row_blocks);
    logits = axis.gather(logits, 0, parallel::axial::extents_on(axis, logits.size(1)));
  }
  const at::Tensor likely = at::softmax(logits.to(at::kCPU, at::kDouble), -1);
  const int64_t classes = likely.size(-1);
  // The expected class: of contacts their probability.
  const at::Tensor found = likely.matmul(at::arange(classes, likely.options()));
  const double largest = static_cast<double>(classes - 1);
  return report::pair_map_svg({.residues = likely.size(0),
                               .found = values_of(found / largest),
                               .truth = values_of(batch.targets[0] / largest)},
                              fmt::format("{}: found (above), true (below)", dataset.name));
}

}  // namespace hanji::train
