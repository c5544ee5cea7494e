// Mistakes that pipelines have been shipped with: each makes a job differ from one process where a test
// looks.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>

#include "hanji/parallel/pipeline/pipeline.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kPasses = 4;  // of 7 samples in micro-batches of 2: the last one has 1

/// One step of a GPT of six layers, by gradient descent.
class PipelineBugs : public testing::Test {
 protected:
  struct Found {
    std::vector<JobRun> ranks;
    std::set<std::string> apart;  ///< Parameters that are not those of one process.
    bool same_loss = false;       ///< Before the update.
  };

  static const Dataset& dataset() {
    static const Dataset opened = open_dataset({}, 8, plan::kAuto).or_throw();
    return opened;
  }

  static plan::Plan planned(int64_t stages, plan::PipelineKind kind = plan::PipelineKind::k1F1B) {
    plan::PlanInputs inputs = configured(stages);
    inputs.config.pipeline.schedule = kind;
    return plan_of(std::move(inputs));
  }

  static plan::Plan plan_of(plan::PlanInputs inputs) {
    if (inputs.config.mesh.pp > 1) inputs.model = count_facts(inputs.config, Workload{dataset()});
    return plan::make_plan(inputs).or_throw();
  }

  static plan::PlanInputs configured(int64_t stages) {
    plan::PlanInputs inputs = float64_job(dataset());
    plan::Config& config = inputs.config;
    update_by_descent(config.train);
    config.train.steps = 1;
    config.train.micro_batch = 2;
    config.run.ranks = config.mesh.pp = stages;
    return inputs;
  }

  static const JobRun& whole() {
    static const JobRun run = run_job(planned(1), dataset(), {.before_update = update})[0];
    return run;
  }

  static void update(Job& job) { descend(job); }

  static Found found(const Tampering& tampering,
                     plan::PipelineKind kind = plan::PipelineKind::k1F1B) {
    Found found{.ranks = run_job(planned(2, kind), dataset(), tampering)};
    for (const JobRun& one : found.ranks) found.apart.merge(apart(one, whole(), kSgdDifference));
    const double loss = found.ranks[0].losses[0];
    found.same_loss = std::abs(loss - whole().losses[0]) <= kSgdDifference * loss;
    return found;
  }

  /// Multiplies the gradient of the loss of each micro-batch.
  static Tampering weighted(const std::vector<double>& weights) {
    const auto at_start = [weights](Job& job) {
      const int64_t last = job.model->num_layers() - 1;
      const auto passes = std::make_shared<size_t>(0);
      job.scopes.push_back([=](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
        layers::Flow out = run(std::move(flow));
        if (layer != last) return out;
        const double weight = weights.at((*passes)++);
        out[0].register_hook([weight](const at::Tensor& gradient) { return gradient * weight; });
        return out;
      });
    };
    return {.at_start = at_start, .before_update = update};
  }

  /// Calls `action` before the forward of the last micro-batch, when other backwards are over.
  static Tampering before_last_pass(const std::function<void(Job&)>& action) {
    const auto at_start = [action](Job& job) {
      const auto& stages = job.pipeline.stages();
      const int64_t first = stages.layers[job.stages->rank()].begin;
      const auto passes = std::make_shared<int64_t>(0);
      job.scopes.push_back(
          [=, &job](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
            if (layer == first && ++*passes == kPasses) action(job);
            return run(std::move(flow));
          });
    };
    return {.at_start = at_start, .before_update = update};
  }

  static std::vector<std::string> all_names() {
    std::vector<std::string> names;
    for (const auto& [name, value] : whole().parameters) names.push_back(name);
    return names;
  }
};

TEST_F(PipelineBugs, WithoutOneAJobIsThatOfOneProcess) {
  const Found none = found(weighted(std::vector<double>(kPasses, 1)));
  EXPECT_THAT(none.apart, IsEmpty());
  EXPECT_TRUE(none.same_loss);
}

/// The mean is then that of one process, and its gradient as many times too large as there are passes.
TEST_F(PipelineBugs, ALossThatIsDividedAfterBackwardIsSeenAtAllParameters) {
  const Found wrong = found(weighted(std::vector<double>(kPasses, kPasses)));
  EXPECT_THAT(wrong.apart, testing::ElementsAreArray(all_names()));
  EXPECT_TRUE(wrong.same_loss) << "or the loss would show it";
}

TEST_F(PipelineBugs, AMicroBatchThatWeighsAsMuchAsALargerOneIsSeenAtAllParameters) {
  const Found wrong = found(weighted({7 / 8., 7 / 8., 7 / 8., 7 / 4.}));
  EXPECT_THAT(wrong.apart, testing::ElementsAreArray(all_names()));
}

TEST_F(PipelineBugs, ATiedWeightThatOneStageUpdatesIsSeenAtItsName) {
  const auto update_first = [](Job& job) {
    descend(job, job.stages->rank() == 0 ? "" : "wte.weight");
  };
  EXPECT_THAT(found({.before_update = update_first}).apart, ElementsAre(HasSubstr("wte.weight")));
  const auto check = [&] {
    found({.before_update = update_first, .at_end = [](const Job& job) { check_parameters(job); }});
  };
  EXPECT_THAT(check, testing::ThrowsMessage<Error>(HasSubstr("wte.weight")))
      << "nor do ranks go on with copies that differ";
}

TEST_F(PipelineBugs, ATiedWeightWhoseGradientsAreNotSummedIsSeenAtItsName) {
  const auto only_own = [](Job& job) {
    gradient_of(job, "wte.weight").mul_(job.stages->rank() == 0 ? 1 : 0.5);
    descend(job);
  };
  EXPECT_THAT(found({.before_update = only_own}).apart, ElementsAre(HasSubstr("wte.weight")));
}

TEST_F(PipelineBugs, ASecondPipelineOfAModelKeepsTheGradientsThatHaveBeenAdded) {
  const auto construct = [](Job& job) {
    parallel::keep_stages_of(job.stages->rank(), job.pipeline.stages(), *job.model);
    const parallel::Pipeline second(*job.model, job.pipeline.stages(), job.pipeline.group());
  };
  EXPECT_THAT(found(before_last_pass(construct)).apart, IsEmpty());
}

TEST_F(PipelineBugs, GradientsThatASecondPipelineClearsAreSeenAtAllParameters) {
  const auto clear = [](Job& job) { job.strategy->begin_step(); };
  EXPECT_THAT(found(before_last_pass(clear)).apart, testing::ElementsAreArray(all_names()));
}

TEST_F(PipelineBugs, AnActivationOfAnEarlierMicroBatchIsSeenInTheLoss) {
  const auto send_stale = [](Job& job) {
    if (job.stages->rank() != 0) return;
    const int64_t last = job.pipeline.stages().layers[0].end - 1;
    job.scopes.push_back([last, before = std::make_shared<at::Tensor>()](
                             int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
      flow = run(std::move(flow));
      if (layer != last) return flow;
      const at::Tensor sent = flow[0];
      if (before->defined() && before->sizes() == sent.sizes()) {
        flow[0] = sent + (*before - sent).detach();
      }
      *before = sent.detach();
      return flow;
    });
  };
  const Found wrong = found({.at_start = send_stale, .before_update = update});
  EXPECT_FALSE(wrong.same_loss);
  EXPECT_THAT(wrong.apart, testing::Not(IsEmpty()));
}

TEST_F(PipelineBugs, AWeightPassThatTheLastMicroBatchSkipsIsSeenAtAllParameters) {
  const auto skip_last = [](schedule::ActionList& actions) {
    std::erase_if(actions, [](const schedule::Action& action) {
      return action.kind == schedule::ActionKind::kBackwardWeight &&
             action.micro_batch == kPasses - 1;
    });
  };
  const auto kind = plan::PipelineKind::kZbH1;
  EXPECT_THAT(found({.before_update = update}, kind).apart, IsEmpty());
  const Found wrong = found({.before_update = update, .actions = skip_last}, kind);
  EXPECT_THAT(wrong.apart, testing::ElementsAreArray(all_names()));
  EXPECT_TRUE(wrong.same_loss);
}

/// Two stages on two ranks each, whose parameters are gathered from shards; two steps.
class GatheredStages : public PipelineBugs {
 protected:
  static plan::Plan planned_to_gather(int64_t stages) {
    plan::PlanInputs inputs = configured(stages);
    inputs.config.train.steps = 2;
    if (stages == 1) return plan_of(inputs);
    inputs.config.run.ranks = 2 * stages;
    inputs.config.parallel.data = plan::Sharding::kZero3;
    inputs.config.parallel.share_memory = false;
    return plan_of(inputs);
  }

  /// Parameters that are not those of one process after two steps.
  static std::set<std::string> apart_if(const std::function<void(Job&)>& at_start) {
    const JobRun expected = run_job(planned_to_gather(1), dataset(), {.before_update = update})[0];
    std::set<std::string> names;
    const Tampering tampering{.at_start = at_start, .before_update = update};
    for (const JobRun& one : run_job(planned_to_gather(2), dataset(), tampering)) {
      names.merge(apart(one, expected, kSgdDifference));
    }
    return names;
  }
};

TEST_F(GatheredStages, AStaleWeightIsSeenAfterTheNextStep) {
  EXPECT_THAT(apart_if([](Job&) {}), IsEmpty());
  const auto keep_first = [](Job& job) {
    const at::Tensor weight = job.strategy->parameters().back().tensor;
    const auto before = std::make_shared<at::Tensor>();
    const auto& stages = job.pipeline.stages();
    const int64_t last = stages.layers[job.stages->rank()].end - 1;
    job.scopes.push_back([=](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
      if (layer != last) return run(std::move(flow));
      const at::NoGradGuard no_grad;
      if (!before->defined()) *before = weight.detach().clone();
      weight.data().copy_(*before);  // what was gathered in the first step; no version counts it
      const at::AutoGradMode with_grad(true);
      return run(std::move(flow));
    });
  };
  EXPECT_THAT(apart_if(keep_first), testing::Not(IsEmpty()));
}

TEST_F(GatheredStages, AnUpdateBesideUnitsThatWouldBeStaleIsRefused) {
  const auto hold = [](Job& job) { job.strategy->unshard({0, job.model->num_layers()}); };
  EXPECT_THAT([&] { apart_if(hold); },
              testing::ThrowsMessage<Error>(HasSubstr("would go on with stale values")));
}

}  // namespace
}  // namespace hanji::train
