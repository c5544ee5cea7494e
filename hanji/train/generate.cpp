#include "hanji/train/generate.h"

#include <ATen/ops/zeros.h>

#include <functional>

#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/models/generate.h"
#include "hanji/train/job.h"
#include "hanji/train/make_model.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

struct Runnable {
  layers::Model& model;
  std::vector<layers::LayerScope> scopes = {};
  std::function<layers::Flow(const layers::Batch&)> forward = {};
};

/// The last row of logits, computed by the stages of all ranks. Collective among them.
layers::Flow run_stages(const Job& job, int64_t vocabulary, const layers::Batch& batch) {
  const parallel::Stages& stages = job.pipeline.stages();
  // A new one for each length: a pipeline knows one shape of a sample's flow.
  parallel::Pipeline pipeline(*job.model, stages, *job.stages);
  at::Tensor logits = at::zeros({vocabulary}, at::kDouble);
  const auto forward = [&](const schedule::Action& action) {
    const layers::Flow flow = pipeline.forward(action, batch, job.strategy->scopes());
    if (action.stage == stages.last()) logits.copy_(flow.at(0).select(1, -1).flatten());
  };
  pipeline.run(schedule::forward_actions(stages.ranks, job.stages->rank(), 1), {batch.size()},
               {.forward = forward});
  take_from_last_stage(logits, job, "logits");
  return {logits.view({1, 1, vocabulary})};
}

Result<std::string> continue_prompt(const Runnable& of, const plan::Plan& plan,
                                    const data::Vocabulary& vocabulary,
                                    const GenerateOptions& options) {
  HANJI_ASSIGN_OR_RETURN(const auto prompt, vocabulary.encode(options.prompt));
  std::vector<int64_t> tokens(prompt.num_tokens());
  HANJI_RETURN_IF_ERROR(prompt.copy_tokens(0, prompt.num_tokens(), tokens.data()));
  if (tokens.empty()) return base::invalid_argument("generate: the prompt is empty; give --prompt");
  const auto continuation =
      models::generate(of.model, tokens,
                       {.num_tokens = options.num_tokens,
                        .temperature = options.temperature,
                        .top_k = options.top_k,
                        .seed = options.seed,
                        .block = plan.config.model.block,
                        .vocabulary = plan.config.model.vocabulary,
                        .scopes = of.scopes,
                        .forward = of.forward,
                        .device = checkpoint::parameters_of(of.model).front().tensor.device()});
  return options.prompt + vocabulary.decode(continuation);
}

}  // namespace

Result<std::string> generate(const GenerateOptions& options) {
  HANJI_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::load_checkpoint(options.checkpoint));
  if (options.on_refused && !checkpoint.refused.empty()) options.on_refused(checkpoint.refused);
  HANJI_ASSIGN_OR_RETURN(const auto vocabulary, vocabulary_of(checkpoint.manifest));
  if (!vocabulary) {
    return base::unsupported(checkpoint.path.string() +
                             ": its model was trained on bare token ids or images, so there is no "
                             "text to continue; generate needs a run on --text");
  }
  HANJI_ASSIGN_OR_RETURN(const auto plan, plan::plan_from_json(checkpoint.manifest.plan));
  const auto model = make_model(plan);
  HANJI_RETURN_IF_ERROR(checkpoint::copy_into(checkpoint.model, checkpoint::parameters_of(*model)));
  return continue_prompt({*model}, plan, *vocabulary, options);
}

Result<std::string> generate_text(const Job& job, const plan::Plan& plan,
                                  const data::Vocabulary& vocabulary,
                                  const GenerateOptions& options) {
  Runnable runnable{*job.model, job.strategy->scopes()};
  if (job.stages) {
    runnable.forward = [&](const layers::Batch& batch) {
      return run_stages(job, plan.config.model.vocabulary, batch);
    };
  }
  return continue_prompt(runnable, plan, vocabulary, options);
}

}  // namespace hanji::train
