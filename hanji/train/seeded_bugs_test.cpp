// Mistakes that parallel training has been shipped with: verify finds each, and names tensor and axis.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/host_values.h"
#include "hanji/data/text.h"
#include "hanji/models/make.h"
#include "hanji/plan/test_plan.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/state.h"
#include "hanji/train/test_parts_net.h"
#include "hanji/train/test_verified.h"

namespace hanji::train {
namespace {

using parallel::tensor::Axis;

constexpr int64_t kBuggedSteps = 3;
constexpr int64_t kBuggedBatch = 4;
constexpr int kBuggedBlocks = 2;

class BiasOfEveryRank : public PartsNet {
 public:
  using PartsNet::PartsNet;
  Typed<Replicated> add_bias(const Typed<Replicated>& y) const override {
    const at::Tensor bias = parameter<Replicated>("down_bias").weight.value;
    return Typed<Replicated>(y.value() + bias * axis().degree());
  }
};

/// The gradient of the head goes through a sum that only terms of one whole need.
class TiedTableSummedAgain : public PartsNet {
 public:
  using PartsNet::PartsNet;
  Parameter<Sharded<0>> head() const override {
    Parameter<Sharded<0>> own = PartsNet::head();
    own.weight = enter(Parameter<Replicated>{own.weight}, axis().in_blocks(1)).weight;
    return own;
  }
};

/// Tokens of other parts are read from the nearest row and left out of the value, not of the gradient.
class RowsThatLearnFromOtherParts : public PartsNet {
 public:
  using PartsNet::PartsNet;
  Typed<Partial> embed(const at::Tensor& tokens) const override {
    if (axis().degree() == 1) return PartsNet::embed(tokens);
    const at::Tensor table = parameter<Sharded<0>>("table").weight.value;
    const layout::Range own = axis().own_range(axis().extents_of(kTokens, kUnit));
    const at::Tensor is_here = tokens.ge(own.begin).logical_and(tokens.lt(own.end)).unsqueeze(-1);
    const at::Tensor found = at::embedding(table, (tokens - own.begin).clamp(0, own.size() - 1));
    const at::Tensor term = found - (found * is_here.logical_not()).detach();
    return Typed<Partial>(term.unsqueeze(0));
  }
};

class EqualNumbersOnAllParts : public PartsNet {
 public:
  using PartsNet::PartsNet;
  Typed<Features> drop(const Typed<Features>& x, const compute::DropoutKey& key) const override {
    return Typed<Features>(compute::dropout(x.value(), kDropped, key));
  }
};

class EqualNumbersOnAllSamples : public PartsNet {
 public:
  EqualNumbersOnAllSamples(const Axis& axis, int64_t first_sample)
      : PartsNet(axis), first_sample_(first_sample) {}
  Typed<Features> drop(const Typed<Features>& x, const compute::DropoutKey& key) const override {
    compute::DropoutKey from_zero = key;
    from_zero.first_sample -= first_sample_;
    return PartsNet::drop(x, from_zero);
  }

 private:
  int64_t first_sample_;  ///< Of this rank.
};

/// Gathers a cut parameter once, and not again after an update.
class StaleGatheredWeight : public PartsNet {
 public:
  using PartsNet::PartsNet;
  at::Tensor all_positions() override {
    const at::Tensor fresh = PartsNet::all_positions();
    if (axis().degree() == 1) return fresh;
    if (!gathered_.defined()) gathered_ = fresh.detach().clone();
    return fresh + (gathered_ - fresh).detach();
  }

 private:
  at::Tensor gathered_;
};

/// A scale and a bias that every token meets, on tokens that the axis cuts. Gradients are sums of
/// integers, which have the same bits in any order, and the loss does not depend on them.
class NormOfTokens : public layers::Model {
 public:
  using Replicated = parallel::tensor::Replicated;
  using Row = parallel::tensor::RowParameter<parallel::tensor::Tokens>;

  explicit NormOfTokens(const Axis& axis) : Model("NormOfTokens"), axis_(axis.in_blocks(1)) {
    register_parameter("norm", at::ones({8}));
    register_parameter("norm_bias", at::zeros({8}));
  }
  int64_t num_layers() const override { return 1; }
  layers::Flow layer(int64_t, layers::Flow, const layers::Batch& batch) override {
    const at::Tensor x = (batch.inputs.unsqueeze(-1) * at::arange(1, 9)).remainder(7);
    const auto own =
        parallel::tensor::cut<-2>(parallel::tensor::Typed<Replicated>(x.to(at::kFloat)), axis_);
    const auto y = own.value() * row("norm").weight.value + row("norm_bias").weight.value;
    return {sum(parallel::tensor::Typed<parallel::tensor::Partial>(y.sum()), axis_).value()};
  }
  std::vector<at::Tensor> layer_parameters(int64_t) const override { return parameters(); }
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override {
    return {flow[0] - flow[0].detach() + 1, batch.num_valid};
  }
  layout::Cut cut() const override { return {{{"*", {}}}, axis_.rank(), axis_.degree()}; }

 protected:
  /// Whose gradient is the sum of all ranks'.
  virtual Row row(const std::string& name) const { return enter({{named_parameters()[name], {}}}); }
  Row enter(const parallel::tensor::Parameter<Replicated>& all) const {
    return parallel::tensor::enter(all, axis_);
  }

 private:
  const Axis axis_;
};

/// No type of the parts takes it: wrong_pairings_test.cpp has Meets<Tokens, Replicated>.
class NormOfTokensNotSummed : public NormOfTokens {
 public:
  using NormOfTokens::NormOfTokens;
  Row row(const std::string& name) const override { return {{named_parameters()[name], {}}}; }
};

using MakeNet = std::function<std::shared_ptr<layers::Model>(const Axis& axis, int64_t first)>;
template <class Net>
std::shared_ptr<layers::Model> make_net(const Axis& axis, int64_t /*first*/) {
  return std::make_shared<Net>(axis);
}

/// One mistake, and the job that is right without it.
struct SeededBug {
  std::string name;
  MakeNet right = make_net<PartsNet>;
  MakeNet wrong = make_net<PartsNet>;
  int64_t samples_with_targets = kBuggedBatch;
  std::function<void(Job&)> at_start = [](Job&) {};
  std::function<void(Job&, const StepInputs&)> before_step = [](Job&, const StepInputs&) {};
  std::function<void(Job&, const StepInputs&)> after_step = [](Job&, const StepInputs&) {};
  std::function<void(Job&, const StepInputs&)> after_right_step = [](Job&, const StepInputs&) {};
};

/// Mean over a data coordinate's own targets, then over the coordinates.
void average_local_means(Job& job, const StepInputs& inputs) {
  auto& net = dynamic_cast<PartsNet&>(*job.model);
  at::Tensor targets = at::zeros({1}, at::kDouble);
  for (const layers::Batch& batch : inputs.micro_batches) targets += net.num_counted(batch);
  const double own = std::max(1.0, targets.item<double>());
  comm::all_reduce_on_host(targets, job.data, {.label = "targets"});
  net.loss_scale = targets.item<double>() / (own * job.data.size());
}

/// The norm with another placement of some parameters.
void count_as(Job& job, const layout::NamedPlacement& rule) {
  if (!job.cut) return;
  layout::Cut cut = job.model->cut();
  cut.placements.insert(cut.placements.begin(), rule);
  job.block_norm.emplace(job.strategy->parameters(), cut, Axis(*job.cut).in_blocks(kBuggedBlocks));
}

void resume_from(Job& job, const StepInputs& inputs, const std::filesystem::path& saved) {
  if (inputs.number != 0) return;
  comm::barrier(job.group, {.label = "before"});
  EXPECT_EQ(restore(job, saved).or_throw(), 1);
  comm::barrier(job.group, {.label = "restored"});
}

/// A checkpoint's moments are those of whole tensors: a part takes none of them.
void drop_moments_of_parts(Job& job, const StepInputs& inputs) {
  if (inputs.number != 0) return;
  for (const StateTensor& one : view_of(job).optimizer) {
    if (one.placement.is_cut()) one.tensor.zero_();
  }
}

class SeededBugs : public testing::Test {
 protected:
  static const Dataset& dataset() {
    static const Dataset opened = [] {
      plan::DataConfig bytes;
      bytes.vocabulary = plan::VocabularyKind::kByte;
      return open_dataset(bytes, PartsNet::kLength, plan::kAuto).or_throw();
    }();
    return opened;
  }

  /// Two data coordinates of two ranks that cut the model.
  static plan::Plan planned() {
    plan::PlanInputs inputs = plan::test_plan::small_gpt(dataset().facts());
    plan::Config& config = inputs.config;
    config.run.ranks = 4;
    config.mesh.tp = 2;
    config.train.bits = plan::Bits::kStable;
    config.train.cuts.features = kBuggedBlocks;
    config.train.steps = kBuggedSteps;
    config.train.global_batch = kBuggedBatch;
    config.train.warmup_steps = 0;
    config.train.clip = 0;
    config.train.evaluate_batches = 1;
    inputs.model = count_facts(config, Workload{dataset()});
    return plan::make_plan(inputs).or_throw();
  }

  static MakeModel maker(const SeededBug& bug, const MakeNet& make, int64_t first) {
    return [=](const plan::Config&, const models::MakeOptions& options) {
      auto model = make(options.axis, first);
      if (auto* net = dynamic_cast<PartsNet*>(model.get())) {
        net->samples_with_targets = bug.samples_with_targets;
      }
      return model;
    };
  }

  static report::Certificate certificate_of(const SeededBug& bug, bool is_wrong) {
    ObservedParts parts;
    parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
      const int64_t first = plan::share_of(plan, group.rank()).samples.begin;
      Job job = assemble(plan, group, maker(bug, is_wrong ? bug.wrong : bug.right, first));
      if (is_wrong) bug.at_start(job);
      return job;
    };
    parts.step = [&](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
      if (is_wrong) bug.before_step(job, inputs);
      const StepResult result = run_step(job, train, inputs);
      bug.after_right_step(job, inputs);
      if (is_wrong) bug.after_step(job, inputs);
      return result;
    };
    return verified(planned(), {dataset(), maker(bug, bug.right, 0)}, parts);
  }

  /// A checkpoint of one process after one step.
  static void save_first_step(const std::filesystem::path& folder) {
    const plan::Plan two = plan::without_axis(planned(), "tp").or_throw();
    const plan::Plan one = plan::without_axis(two, "dp").or_throw();
    const SeededBug none;
    const auto save = [&](Job& job, const StepInputs& inputs) {
      if (inputs.number != 0) return;
      checkpoint::SaveOptions options{.folder = folder, .copy_bytes = 1000};
      base::throw_if_error(checkpoint::begin_checkpoint(options, 1, {}));
      base::throw_if_error(checkpoint::save_checkpoint(options, state_to_save(job), {.step = 1}));
    };
    ObservedParts parts;
    parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
      return assemble(plan, group, maker(none, none.right, 0));
    };
    parts.step = [&](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
      const StepResult result = run_step(job, train, inputs);
      save(job, inputs);
      return result;
    };
    test::run_ranks(1, [&](world::World& world) {
      (void)observe_rank(one, dataset(), world.group(), {}, parts);
    });
  }

  static std::vector<SeededBug> bugs(const std::filesystem::path& saved) {
    const layout::Placement twice{0, {2 * PartsNet::kWidth}, PartsNet::kUnit, kBuggedBlocks};
    const layout::Placement half{1, {PartsNet::kInner / 2}, PartsNet::kUnit, kBuggedBlocks};
    return {{.name = "the bias of a linear cut by rows is added on every rank",
             .wrong = make_net<BiasOfEveryRank>},
            {.name = "gradients of norms are not summed under sequence parallelism",
             .right = make_net<NormOfTokens>,
             .wrong = make_net<NormOfTokensNotSummed>},
            {.name = "the loss is averaged over local targets",
             .samples_with_targets = 3,
             .before_step = average_local_means},
            {.name = "a rank without targets counts in the average",
             .samples_with_targets = 2,
             .before_step = average_local_means},
            {.name = "the norm counts replicated parameters twice",
             .at_start =
                 [=](Job& job) {
                   count_as(job, {"norm*", twice});
                 }},
            {.name = "the norm misses a part of weights cut by inputs",
             .at_start =
                 [=](Job& job) {
                   count_as(job, {"down", half});
                 }},
            {.name = "moments of parts are dropped by a checkpoint of another mesh",
             .after_step = drop_moments_of_parts,
             .after_right_step =
                 [=](Job& job, const StepInputs& inputs) { resume_from(job, inputs, saved); }},
            {.name = "parts of one tensor drop by equal random numbers",
             .wrong = make_net<EqualNumbersOnAllParts>},
            {.name = "samples of several ranks drop by equal random numbers",
             .wrong =
                 [](const Axis& axis, int64_t first) {
                   return std::make_shared<EqualNumbersOnAllSamples>(axis, first);
                 }},
            {.name = "the table tied to the head is summed once too often",
             .wrong = make_net<TiedTableSummedAgain>},
            {.name = "rows of the vocabulary learn from tokens of another part",
             .wrong = make_net<RowsThatLearnFromOtherParts>},
            {.name = "a gathered weight is stale after an update",
             .wrong = make_net<StaleGatheredWeight>}};
  }

  /// As in the table of the docs.
  static std::string row_of(const SeededBug& bug, const report::FirstDifference& found) {
    return fmt::format("| {} | step {} | {} `{}` | {} |", bug.name, found.step,
                       name_of(found.quantity), found.tensor, fmt::join(found.axes, ", "));
  }
};

TEST_F(SeededBugs, AreNamedByTensorAndAxisAsTheDocsSay) {
  const test::TemporaryFolder folder;
  save_first_step(folder.path());
  std::string text(data::embedded_text());  // has the docs
  for (const SeededBug& bug : bugs(folder.path() / checkpoint::folder_name(1))) {
    const auto right = certificate_of(bug, false);
    EXPECT_TRUE(right.equal()) << bug.name << "\n" << report::describe(right);
    const auto wrong = certificate_of(bug, true);
    ASSERT_FALSE(wrong.equal()) << bug.name;
    const std::string row = row_of(bug, *wrong.difference) + "\n";
    const size_t found = text.find(row);
    EXPECT_NE(found, std::string::npos) << row << report::describe(wrong);
    if (found != std::string::npos) text.erase(found, row.size());
  }
  const std::string emptied =
      "| says `hanji verify`: first | tensor | axis |\n|---|---|---|---|\n\n";
  EXPECT_NE(text.find(emptied), std::string::npos) << "a row of the docs is of no mistake here";
}

}  // namespace
}  // namespace hanji::train
