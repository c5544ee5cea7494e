#include "hanji/cli/capacity_options.h"

#include <algorithm>
#include <numeric>

#include "hanji/base/advice.h"
#include "hanji/base/file.h"
#include "hanji/base/limits.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/topology/machine.h"
#include "hanji/train/prepare.h"

namespace hanji::cli {
namespace {

constexpr const char* kGroup = "A model on devices that need not be there";
constexpr int kMaxSamples = 1 << 20;
constexpr int kMaxTokens = 1 << 24;

/// What ranks on this host may use.
Result<plan::DeviceSpec> this_host() {
  HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
  return plan::DeviceSpec{.name = "this host",
                          .memory_bytes = machine.available_bytes,
                          .source = "what is free now",
                          .date = "",
                          .shares_host = true};
}

Result<plan::DeviceSpec> device_of(Verb verb) {
  return verb.was_given("--device") ? plan::find_device(verb.text_of("--device")) : this_host();
}

/// The preset of that name; of a family's own name its largest.
Result<std::string> preset_called(const std::string& name) {
  const auto known = plan::preset_names();
  if (std::ranges::find(known, name) != known.end()) return name;
  for (const plan::ModelFamily& family : plan::model_families()) {
    if (family.name == name && !family.presets.empty()) return std::string(family.presets.back());
  }
  std::string names;
  for (const std::string_view one : known) names += ", " + std::string(one);
  return base::invalid_argument("--model " + name + " is none of gpt:SIZE, the presets" +
                                names.substr(1) + ", and a FILE.json of hanji::describe()");
}

}  // namespace

Option CapacityOptions::add_model(Verb verb, const std::string& use) {
  const Option model =
      verb.add_option("--model", &model_,
                      "gpt:7B, a preset, or a FILE.json that hanji::describe() wrote: " + use)
          .type_name("NAME")
          .group(kGroup);
  const auto add = [&](const char* flag, Target value, const char* words) {
    return verb.add_option(flag, value, words).type_name("N").group(kGroup).needs(model);
  };
  add("--micro-batch", &micro_batch_, "samples of one forward; default 1").range(1, kMaxSamples);
  add("--block", &block_, "tokens of a GPT's sample; default: the model's").range(1, kMaxTokens);
  verb.add_flag("--recompute", &recompute_, "layers keep their input and compute twice")
      .group(kGroup)
      .needs(model);
  return model;
}

void CapacityOptions::add_to(Verb verb) {
  verb.add_flag(
      "--meshes", &meshes_,
      "every mesh of the ranks that fits, best first: memory, bytes of each axis, bubble, "
      "seconds; of a job, or of a GPT of --model, with --mesh that one");
  const Option model = add_model(
      verb,
      "what it needs with every strategy, on --ranks times --device (h100-80, 24GB, "
      "cpu-64GB; default: this host); a preset with the data that it was published with, --set "
      "changes its keys of [model] and [data]");
  const auto add = [&](const char* flag, Target value, const char* words, const char* type) {
    return verb.add_option(flag, value, words).type_name(type).group(kGroup).needs(model);
  };
  add("--ranks-per-host", &ranks_per_host_, "default 8", "N").range(1, base::kMaxRanks);
  add("--fsdp", &fsdp_, "ranks of a group within which hsdp shards; default: those of a host", "N")
      .range(1, base::kMaxRanks);
  add("--servers", &servers_, "parameter servers beside the ranks; default 1", "N")
      .range(1, base::kMaxRanks);
  add("--states", &states_, "mixed: bf16 with an fp32 copy, Adam (default); fp32: all fp32, Adam",
      "KIND")
      .one_of({"mixed", "fp32"});
  add("--svg", &svg_, "the bars as a drawing", "FILE");
  add("--residues", &residues_,
      "of a sample of a model of pairs: memory, bytes and seconds on 1, 2, 4 ... --ranks that "
      "share out its rows",
      "N")
      .range(1, kMaxTokens);
  add("--msa", &sequences_, "of --residues: sequences of a sample; default: as published", "N")
      .range(1, kMaxTokens);
  add("--global-batch", &global_batch_,
      "of --meshes: samples of a step; default: a micro-batch a rank", "N")
      .range(1, kMaxSamples);
  add("--network", &network_,
      "of --meshes: bytes a second of a rank's adapter between hosts; default 25GB (200 Gb/s)",
      "BYTES");
}

Result<std::optional<plan::MeshConfig>> CapacityOptions::only_mesh(Verb verb) const {
  if (!verb.was_given("--mesh")) return std::optional<plan::MeshConfig>();
  plan::MeshConfig mesh;
  const std::string given = verb.text_of("--mesh");
  for (const std::string_view one : base::split(given, ',')) {
    const size_t equals = std::min(one.find('='), one.size());
    const auto axis =
        std::ranges::find(plan::kAxisKeys, one.substr(0, equals), &plan::AxisKey::axis);
    const auto degree =
        equals < one.size() ? parse_int(std::string(one.substr(equals + 1))) : std::optional<int>();
    if (axis == plan::kAxisKeys.end() || !degree || *degree < 1) {
      return base::invalid_argument("--mesh " + given + ": '" + std::string(one) +
                                    "' is not an axis with its degree; write pp=2,dp=4,tp=2");
    }
    mesh.*axis->degree = *degree;
  }
  return std::optional(mesh);
}

Result<plan::Config> CapacityOptions::preset_config(
    std::span<const std::string> assignments) const {
  HANJI_ASSIGN_OR_RETURN(const std::string preset, preset_called(model_));
  plan::ConfigSources sources{.as_published = true};
  sources.overrides = {{"model.preset=" + preset, "--model"}};
  for (const std::string& one : assignments) {
    sources.overrides.push_back({one});
    if (one.starts_with("model.") || one.starts_with("data.")) continue;
    return base::invalid_argument("--set " + one +
                                  " is of a job; beside --model it takes keys of model and data");
  }
  const auto set = [&](const char* key, int64_t value, const char* flag) {
    if (value != 0) sources.overrides.push_back({key + ("=" + std::to_string(value)), flag});
  };
  set("model.block", block_, "--block");
  set("data.residues", residues_, "--residues");
  set("data.sequences", sequences_, "--msa");
  plan::LoadedConfig loaded = plan::load_config(sources);
  HANJI_RETURN_IF_ERROR(plan::to_status(loaded.mistakes));
  return std::move(loaded.config);
}

Result<plan::NamedModel> CapacityOptions::find_preset(
    const plan::FactsOptions& options, std::span<const std::string> assignments) const {
  HANJI_ASSIGN_OR_RETURN(const plan::Config config, preset_config(assignments));
  const plan::ModelFamily& family = plan::family_of(config.model);
  if (family.data == plan::DataKind::kOwn) {
    return base::invalid_argument(
        "--model " + model_ +
        " is a program's own; let it write hanji::describe(model, sample) "
        "to a FILE.json, and give that");
  }
  const std::string& preset = config.model.preset;
  if (family.facts != nullptr) return plan::find_model(preset, options, config.model);
  HANJI_ASSIGN_OR_RETURN(const plan::CountedModel counted, train::count_preset(config));
  return plan::named(preset, counted, options.precision, plan::describe_sample(config));
}

Result<plan::PairCapacity> CapacityOptions::pair_capacity(
    Verb verb, std::span<const std::string> assignments) const {
  std::string wrong;
  const auto refuse = [&](const std::string& words) {
    wrong += (wrong.empty() ? "" : "; ") + words;
  };
  for (const char* flag :
       {"--config", "--text", "--tokens", "--mesh", "--steps", "--seed", "--out", "--hosts",
        "--print-config", "--keys", "--meshes", "--svg", "--states"}) {
    if (verb.was_given(flag)) refuse(std::string(flag) + " means nothing to --residues");
  }
  plan::PairCapacity capacity{.config = {}, .device = {}, .micro_batch = micro_batch_};
  if (const auto device = device_of(verb); device.ok()) {
    capacity.device = *device;
  } else {
    refuse(device.status().message());
  }
  const std::string given = verb.was_given("--ranks") ? verb.text_of("--ranks") : "8";
  const int ranks = parse_int(given).value_or(0);
  if (ranks < 1) refuse("--ranks " + given + " is no number of ranks");
  const bool is_preset = !model_.starts_with("gpt:") && !model_.ends_with(".json");
  const auto config = is_preset ? preset_config(assignments) : Result<plan::Config>(plan::Config());
  if (!config.ok()) {
    refuse(config.status().message());
  } else if (plan::family_of(config->model).data != plan::DataKind::kPairs) {
    refuse("--model " + model_ + " has no pairs, which --residues are of");
  } else if (const auto parts = plan::family_of(config->model).parts(*config, "axial");
             ranks > parts.count) {
    refuse("--ranks " + given + ": a rank has whole " + std::string(parts.name) +
           ", and there are " + std::to_string(parts.count));
  }
  if (!wrong.empty()) return base::invalid_argument(wrong);
  capacity.config = *config;
  capacity.config.model = plan::resolved(config->model);
  capacity.config.compute.recompute = recompute_;
  capacity.rows = train::count_pairs(capacity.config, ranks);
  return capacity;
}

Result<plan::NamedModel> CapacityOptions::find(const plan::FactsOptions& options,
                                               std::span<const std::string> assignments) const {
  const Result<std::string> preset = preset_called(model_);
  if (preset.ok()) return find_preset(options, assignments);
  if (!assignments.empty()) {
    return base::invalid_argument("--set means nothing to --model " + model_ +
                                  "; it changes presets");
  }
  if (model_.starts_with("gpt:")) {
    return plan::find_model(model_, options, {.block = block_ == 0 ? plan::kAuto : block_});
  }
  if (model_.ends_with(".json")) {
    if (block_ != 0) return base::invalid_argument("--block means nothing to a file of a model");
    HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(model_));
    const auto counted = plan::counted_model_from_json(text);
    if (counted.ok()) return plan::named(model_, *counted, options.precision);
    return base::corrupt("--model " + model_ + " is not what hanji::describe() writes: " +
                         base::with_advice(counted.status().message(), "write it again"));
  }
  return preset.status();
}

Result<plan::CapacityQuery> CapacityOptions::query(Verb verb,
                                                   std::span<const std::string> assignments) const {
  std::string wrong;
  const auto refuse = [&](const std::string& words) {
    wrong += (wrong.empty() ? "" : "; ") + words;
  };
  for (const char* flag : {"--config", "--text", "--tokens", "--mesh", "--steps", "--seed", "--out",
                           "--hosts", "--print-config", "--keys"}) {
    if (verb.was_given(flag) && !(meshes_ && flag == std::string_view("--mesh")))
      refuse(std::string(flag) + " is of a job and means nothing to --model");
  }
  plan::CapacityQuery query;
  if (states_ == "fp32") query.widths = plan::kFloat32Adam;
  if (const auto device = device_of(verb); device.ok()) {
    query.device = *device;
  } else {
    refuse(device.status().message());
  }
  const std::string ranks = verb.was_given("--ranks") ? verb.text_of("--ranks") : "1";
  const auto num_ranks = parse_int(ranks);
  if (!num_ranks) refuse("--ranks " + ranks + " is no number of ranks");
  const auto network = base::parse_bytes(network_);
  if (!network.ok()) refuse(network.status().at("--network").message());
  if (network.ok() && *network < 1) refuse("--network " + network_ + " is below 1 byte a second");
  if (sequences_ != 0) refuse("--msa means nothing without --residues");
  auto model = find(plan::facts_options(query.device, query.widths), assignments);
  if (!model.ok()) refuse(model.status().message());
  if (!wrong.empty())
    return Status(model.ok() ? Code::kInvalidArgument : model.status().code(), wrong);
  query.model = *std::move(model);
  query.ranks.ranks = *num_ranks;
  query.ranks_per_host = ranks_per_host_;
  const int in_host = std::gcd(std::max(1, query.ranks.ranks), std::max(1, ranks_per_host_));
  query.ranks.hybrid_ranks = fsdp_ != 0 ? fsdp_ : in_host;
  query.ranks.servers = servers_;
  query.micro_batch = micro_batch_;
  query.recompute = recompute_;
  query.global_batch = global_batch_;
  query.network_rate = static_cast<double>(*network);
  HANJI_RETURN_IF_ERROR(plan::check(query));
  return query;
}

}  // namespace hanji::cli
