#include "hanji/plan/pipeline_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/layout/placement.h"
#include "hanji/layout/unit.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/plan.h"
#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::plan {
namespace {

/// Of a file: a plan keeps its lines.
constexpr size_t kMaxScheduleBytes = 1 << 20;

/// The parameters that layers of a range read, by index.
std::set<int64_t> parameters_of(const ModelFacts& model, layout::Range layers) {
  std::set<int64_t> found;
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const int64_t layer = model.parameters[i].layer;
    if (layers.begin <= layer && layer < layers.end) found.insert(static_cast<int64_t>(i));
  }
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    found.insert(model.layers[i].tied.begin(), model.layers[i].tied.end());
  }
  return found;
}

int64_t bytes_of(const ModelFacts& model, const std::set<int64_t>& parameters, int64_t element) {
  int64_t bytes = 0;
  for (const int64_t index : parameters) bytes += element * model.parameters[index].elements;
  return bytes;
}

/// Stages of each rank, of a schedule that has a name.
int stages_per_rank(const Config& config) {
  return schedule::stages_per_rank(config.pipeline.schedule,
                                   static_cast<int>(config.pipeline.virtual_stages));
}

schedule::PipelineSchedule user_schedule(const Config& config) {
  return schedule::pipeline_from_csv(config.pipeline.lines).or_throw();
}

/// The schedule of a plan that was checked.
schedule::PipelineSchedule schedule_of(const Plan& plan, int data_coordinate) {
  return schedule_of(plan.config, plan.shares[data_coordinate].num_micro_batches).or_throw();
}

/// The ranks of the pipeline that read each parameter, by its index.
std::map<int64_t, std::set<int>> ranks_that_read(const Plan& plan) {
  const auto schedule = schedule_of(plan, 0);
  const std::vector<layout::Range> stages = stages_of(plan);
  std::map<int64_t, std::set<int>> ranks;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const int64_t index : parameters_of(plan.model, stages[stage])) {
      ranks[index].insert(schedule.rank_of_stage[stage]);
    }
  }
  return ranks;
}

/// Of all gradients, as each rank of tp has them.
std::vector<int64_t> norm_sums(const Plan& plan) {
  const int degree = plan.mesh.degree("tp");
  const auto blocks = static_cast<int>(plan.config.train.cuts.features);
  std::vector<int64_t> sums(degree);
  for (int part = 0; part < degree; ++part) {
    const layout::Range own =
        blocks > 1 ? layout::block_owners(blocks, degree)[part] : layout::Range();
    for (const ParameterFacts& one : plan.model.part(part).parameters) {
      if (one.blocks.empty()) sums[part] += layout::num_blocks(one.elements);
      for (int64_t i = own.begin; i < own.end && !one.blocks.empty(); ++i) {
        sums[part] += layout::num_blocks(one.blocks.at(i));
      }
    }
  }
  return sums;
}

/// Empty without a backward_input; else which stages leave the gradients of weights to backward_weight.
std::string describe_split(const Plan& plan, const schedule::PipelineSchedule& schedule) {
  const bool has_parts = std::ranges::any_of(schedule.ranks, [](const auto& actions) {
    return std::ranges::find(actions, schedule::ActionKind::kBackwardInput,
                             &schedule::Action::kind) != actions.end();
  });
  if (!has_parts) return "";
  const std::vector<bool> split = split_stages(plan);
  std::vector<int> whole;
  for (int stage = 0; stage < std::ssize(split); ++stage) {
    if (!split[stage]) whole.push_back(stage);
  }
  if (whole.empty()) return "; all stages leave gradients of weights to backward_weight";
  return fmt::format("; in {} backward_input computes the gradients of weights too",
                     whole.size() == split.size()
                         ? "all stages"
                         : fmt::format("stages {}", fmt::join(whole, ", ")));
}

/// Of the links between hosts; empty where no stage uses them.
std::string describe_traffic(const Plan& plan) {
  const StageTraffic traffic = stage_traffic(plan);
  if (traffic.network_bytes == 0) return "";
  return fmt::format(
      "  between hosts {} a step; over the busiest link, of host {}, {} out and as much in: {}\n",
      base::format_bytes(traffic.network_bytes), traffic.busiest_host,
      base::format_bytes(traffic.busiest_bytes), base::format_seconds(traffic.link_seconds()));
}

/// Sums of uses in the order of layers are those of two ranks, or of one.
void check_uses(const Plan& plan, std::set<std::string>& mistakes) {
  if (plan.config.train.bits != Bits::kStable) return;
  std::map<int64_t, int64_t> later_uses;
  for (const LayerFacts& layer : plan.model.layers) {
    for (const int64_t index : layer.tied) ++later_uses[index];
  }
  for (const auto& [index, ranks] : ranks_that_read(plan)) {
    const auto uses = later_uses.find(index);
    if (ranks.size() < 2 || uses == later_uses.end() || uses->second == 1) continue;
    mistakes.insert(fmt::format(
        "train.bits = stable adds up the uses of a tied weight in order, but parameter {} is read "
        "by "
        "{} on {}; set train.bits = \"run\", or a pipeline.cut with all of them on "
        "one rank",
        index, base::counted(uses->second + 1, "layer"), base::counted(ranks.size(), "rank")));
  }
}

}  // namespace

Result<schedule::PipelineSchedule> read_pipeline(const std::string& file) {
  if (file.find_first_of("./") == std::string::npos) {
    std::vector<std::string_view> names;
    for (const PipelineKind kind : schedule::pipeline_kinds()) names.push_back(name_of(kind));
    const auto meant = base::nearest(file, names);
    return base::invalid_argument(fmt::format(
        "unknown schedule '{}'; schedules: {}, or a FILE.csv{}", file, fmt::join(names, ", "),
        meant ? fmt::format("; did you mean {}?", *meant) : ""));
  }
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(file, kMaxScheduleBytes));
  auto read = schedule::pipeline_from_csv(text);
  if (read.ok()) return read;
  std::string mistakes;
  for (const std::string_view one : base::split(read.status().message(), '\n')) {
    mistakes += fmt::format("{}{}: {}", mistakes.empty() ? "" : "\n", file, one);
  }
  return base::corrupt(mistakes);
}

int num_stages(const Config& config) {
  if (config.pipeline.schedule == PipelineKind::kUser) return user_schedule(config).num_stages();
  return static_cast<int>(config.mesh.pp) * stages_per_rank(config);
}

int64_t micro_batches_asked(const Config& config) {
  const PipelineConfig& pipeline = config.pipeline;
  if (pipeline.micro_batches != kAuto) return pipeline.micro_batches;
  if (pipeline.schedule != PipelineKind::kUser) return 4 * config.mesh.pp;
  return user_schedule(config).shape.num_micro_batches;
}

std::vector<layout::Range> stages_of(const Plan& plan) {
  const auto layers = static_cast<int64_t>(plan.model.layers.size());
  std::vector<layout::Range> stages = {{0, layers}};
  for (const double cut : plan.config.pipeline.cut) {
    stages.back().end = static_cast<int64_t>(cut);
    stages.push_back({stages.back().end, layers});
  }
  return stages;
}

std::vector<bool> split_stages(const Plan& plan) {
  std::vector<bool> split;
  for (const layout::Range stage : stages_of(plan)) {
    split.push_back(splits_backward(plan.model, stage));
  }
  return split;
}

std::vector<int> ranks_of_stages(const Plan& plan) { return schedule_of(plan, 0).rank_of_stage; }

Result<schedule::PipelineSchedule> schedule_of(const Config& config, int64_t num_micro_batches) {
  if (config.pipeline.schedule == PipelineKind::kUser) {
    schedule::PipelineSchedule user = user_schedule(config);
    if (user.shape.num_micro_batches == num_micro_batches) return user;
    return base::invalid_argument(
        fmt::format("the file has {} micro-batches, but the samples of a data coordinate make {}; "
                    "set another train.global_batch",
                    user.shape.num_micro_batches, num_micro_batches));
  }
  return schedule::pipeline_schedule(
      config.pipeline.schedule,
      {static_cast<int>(config.mesh.pp), num_micro_batches, stages_per_rank(config)});
}

ModelFacts facts_of_rank(const Plan& plan, int rank) {
  if (plan.mesh.degree("pp") == 1) return plan.model;
  const auto schedule = schedule_of(plan, 0);
  const std::vector<layout::Range> stages = stages_of(plan);
  ModelFacts own = plan.model;
  own.layers.clear();
  own.parameters.clear();
  std::set<int64_t> parameters;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (schedule.rank_of_stage[stage] != plan.mesh.coordinate(rank, "pp")) continue;
    for (int64_t i = stages[stage].begin; i < stages[stage].end; ++i) {
      own.layers.push_back(plan.model.layers[i]);
      LayerFacts& layer = own.layers.back();
      // What no earlier layer of this rank reads is the rank's first use.
      std::erase_if(layer.tied, [&](int64_t index) { return !parameters.contains(index); });
      parameters.merge(parameters_of(plan.model, {i, i + 1}));
    }
  }
  const auto readers = ranks_that_read(plan);
  for (const int64_t index : parameters) {
    own.parameters.push_back(plan.model.parameters[index]);
    own.parameters.back().is_copied = readers.at(index).size() > 1;
  }
  for (LayerFacts& layer : own.layers) {
    for (int64_t& index : layer.tied) {
      index = std::distance(parameters.begin(), parameters.find(index));
    }
  }
  return own;
}

PipelineFacts pipeline_facts(const Plan& plan) {
  PipelineFacts facts;
  const int ranks = plan.mesh.degree("pp");
  if (ranks == 1) return facts;
  for (const int rank : plan.mesh.members(0, "pp").or_throw()) {
    facts.ranks.push_back(facts_of_rank(plan, rank));
  }
  for (size_t data = 0; data < plan.shares.size(); ++data) {
    facts.seconds.push_back(pipeline_timeline(plan, static_cast<int>(data)).seconds);
  }
  for (const auto& [index, readers] : ranks_that_read(plan)) {
    if (readers.size() < 2) continue;
    facts.tied.push_back({{readers.begin(), readers.end()}, index});
  }
  facts.traffic = stage_traffic(plan);
  if (plan.config.train.bits == Bits::kStable) facts.norm_sums = norm_sums(plan);
  return facts;
}

int64_t most_micro_batches(const Plan& plan) {
  return std::ranges::max(plan.shares, {}, &DataShare::num_micro_batches).num_micro_batches;
}

schedule::PipelineTimeline pipeline_timeline(const Plan& plan, int data_coordinate) {
  const DataShare& share = plan.shares[data_coordinate];
  const double samples =
      static_cast<double>(share.samples.size()) / static_cast<double>(share.num_micro_batches);
  const schedule::PipelineTimes times{
      .stages = stage_times(plan.model, plan.times, stages_of(plan), samples),
      .messages = message_seconds(plan, data_coordinate)};
  return schedule::simulate(schedule_of(plan, data_coordinate), times).or_throw();
}

Status check_pipeline(const Plan& plan) {
  const Config& config = plan.config;
  if (plan.mesh.degree("pp") == 1) return {};
  std::set<std::string> mistakes;
  const std::vector<layout::Range> stages = stages_of(plan);
  const bool is_user = config.pipeline.schedule == PipelineKind::kUser;
  const auto asked = static_cast<size_t>(num_stages(config));
  const std::string asked_by = is_user
                                   ? "pipeline.schedule"
                                   : fmt::format("mesh.pp = {} with {} each", config.mesh.pp,
                                                 base::counted(stages_per_rank(config), "stage"));
  if (const size_t layers = plan.model.layers.size(); asked > layers) {
    mistakes.insert(fmt::format(
        "{} has {}, but the model has {}, counting those beside model.layers; set {}", asked_by,
        base::counted(asked, "stage"), base::counted(std::ssize(plan.model.layers), "layer"),
        is_user ? "fewer stages"
                : fmt::format("mesh.pp = {} or less", layers / stages_per_rank(config))));
  } else if (stages.size() != asked) {
    mistakes.insert(
        fmt::format("pipeline.cut makes {}, but {} has {}; "
                    "give {} first layers, or leave pipeline.cut out",
                    base::counted(stages.size(), "stage"), asked_by, asked, asked - 1));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool is_beyond = stages[i].end > std::ssize(plan.model.layers);
    if (stages[i].size() < 1 || is_beyond) {
      mistakes.insert(fmt::format(
          "pipeline.cut: stage {} would have layers [{}, {}) of {}; give ascending first layers "
          "below {}",
          i, stages[i].begin, stages[i].end, plan.model.layers.size(), plan.model.layers.size()));
    } else if (parameters_of(plan.model, stages[i]).empty()) {
      mistakes.insert(
          fmt::format("stage {} has layers [{}, {}) without a parameter; set another "
                      "pipeline.cut or fewer stages",
                      i, stages[i].begin, stages[i].end));
    }
  }
  if (mistakes.empty()) check_uses(plan, mistakes);
  const int64_t wanted = config.pipeline.micro_batches;
  if (const int64_t count = most_micro_batches(plan); wanted != kAuto && wanted != count) {
    mistakes.insert(fmt::format(
        "pipeline.micro_batches is {}, but the samples of a data coordinate make {} micro-batches; "
        "set pipeline.micro_batches = {}, or another train.global_batch",
        wanted, count, count));
  }
  for (const DataShare& share : plan.shares) {
    const auto schedule = schedule_of(config, share.num_micro_batches);
    if (!schedule.ok()) {
      mistakes.insert(fmt::format("pipeline.schedule: {}{}", schedule.status().message(),
                                  is_user ? "" : "; set pipeline.micro_batches"));
      continue;
    }
    // A send waits in the heap of its rank: any number may.
    const auto checked = schedule::check(*schedule, std::numeric_limits<int64_t>::max());
    if (!checked.ok()) mistakes.insert(std::string(checked.message()));
  }
  if (mistakes.empty()) return {};
  return base::invalid_argument(fmt::format("{}", fmt::join(mistakes, "\n")));
}

std::string describe_pipeline(const Plan& plan) {
  const std::vector<layout::Range> stages = stages_of(plan);
  const auto schedule = schedule_of(plan, 0);
  const schedule::PipelineTimeline timeline = pipeline_timeline(plan, 0);
  std::string out = fmt::format(
      "{}: {} on {}, {} micro-batches; {} of {} are bubble ({:.3f} of the work){}\n",
      name_of(schedule.kind), base::counted(stages.size(), "stage"),
      base::counted(schedule.shape.num_ranks, "rank"), schedule.shape.num_micro_batches,
      base::format_seconds(timeline.seconds - timeline.busiest_seconds),
      base::format_seconds(timeline.seconds), timeline.bubble(), describe_split(plan, schedule));
  const auto samples = static_cast<double>(plan.micro_batch);
  const auto times = stage_times(plan.model, plan.times, stages, samples);
  const int64_t element = parameter_bytes(plan.kernels.precision);
  for (size_t i = 0; i < stages.size(); ++i) {
    const layout::Range layers = stages[i];
    const bool is_last = i + 1 == stages.size();
    const Amount flow = is_last ? Amount() : plan.model.layers[layers.end - 1].flow;
    const bool passes = !is_last && passes_hosts(plan, static_cast<int>(i), 0);
    out += fmt::format(
        "  stage {:<2} rank {:<2} layers {:>3} to {:<3}{:>10}{:>12}{:>12}{}\n", i,
        schedule.rank_of_stage[i], layers.begin, layers.end - 1,
        base::format_seconds(times[i].whole()),
        base::format_bytes(bytes_of(plan.model, parameters_of(plan.model, layers), element)),
        is_last ? "loss" : base::format_bytes(flow.of(plan.micro_batch)),
        passes ? " to another host" : "");
  }
  return out + describe_traffic(plan);
}

}  // namespace hanji::plan
