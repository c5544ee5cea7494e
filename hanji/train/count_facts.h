#pragma once

#include <functional>
#include <vector>

#include "hanji/layers/batch.h"
#include "hanji/layers/flow.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// What the layers of a configuration's model ask for, counted in a forward and backward of few
/// samples: every operation, and every byte that libtorch allocates.
///
/// Result  the facts of the layers as they are run: with compute.recompute those of its repetitions.
///         Nothing is timed.
/// Cost    the model in memory, and three passes over two or four samples on one thread; four where
///         the backward of a layer can be split.
/// Errors  throws what the model throws.
plan::ModelFacts count_facts(const plan::Config& config, const Workload& workload);

/// Fills a batch with so many samples.
using ReadSamples = std::function<void(int64_t samples, layers::Batch& batch)>;
/// Of a model as it is, which loses its gradients, inside these scopes.
plan::ModelFacts count_facts(layers::Model& model, const ReadSamples& read,
                             const std::vector<layers::LayerScope>& scopes);

/// The same of a model of pairs of a resolved configuration, whose pairs have so many classes, on tensors without
/// memory, so that its sizes need not fit here: each layer by itself, of which blocks are alike. Kernels' own
/// temporaries are not counted.
/// Cost    the operations of two blocks a few times, without their arithmetic.
plan::ModelFacts count_pair_facts(plan::Config config, int64_t classes);

/// So many samples of pairs, of the sizes of `data`, on the device "meta".
layers::Batch pairs_without_memory(const plan::DataConfig& data, int64_t samples);

}  // namespace hanji::train
