#include "hanji/train/check_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "hanji/comm/gloo/group.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/comm/nccl/group.h"
#include "hanji/compute/device.h"
#include "hanji/plan/model_family.h"
#include "hanji/train/initial_file.h"
#include "hanji/train/run_folder.h"

namespace hanji::train {
namespace {

using Keys = std::vector<std::string_view>;

constexpr std::array<std::string_view, 24> kDataKeys = {"data.text",
                                                        "data.tokens",
                                                        "data.format",
                                                        "data.vocabulary",
                                                        "data.validation_fraction",
                                                        "model.block",
                                                        "model.vocabulary",
                                                        "model.preset",
                                                        "data.images",
                                                        "data.image_size",
                                                        "data.classes",
                                                        "data.image_count",
                                                        "data.files",
                                                        "data.stage",
                                                        "data.corrupt",
                                                        "data.pairs",
                                                        "data.residues",
                                                        "data.sequences",
                                                        "data.systems",
                                                        "data.weights",
                                                        "data.pages",
                                                        "data.cache",
                                                        "data.epoch_end",
                                                        "data.order"};

bool is_mistaken(const plan::LoadedConfig& loaded, std::string_view key) {
  return std::ranges::any_of(loaded.mistakes, [&](const plan::ConfigMistake& mistake) {
    return mistake.key == key || mistake.key.empty();  // an unreadable file may have set any key
  });
}

/// Blames the first of `keys` that somebody set, or else the last.
void add_mistake(plan::LoadedConfig& loaded, const Keys& keys, const Status& status) {
  const auto was_set = [&](std::string_view key) { return loaded.origins.contains(key); };
  const auto found = std::ranges::find_if(keys, was_set);
  plan::ConfigMistake& mistake = loaded.mistakes.emplace_back();
  mistake.key = found == keys.end() ? *(keys.end() - 1) : *found;
  if (found != keys.end()) mistake.origin = loaded.origins.find(mistake.key)->second;
  mistake.message = status.message();
}

/// What contradicts the vocabulary that was left to the data.
void check_vocabulary_of_data(plan::LoadedConfig& loaded, int64_t vocabulary) {
  plan::Config sized = loaded.config;
  if (!loaded.mistakes.empty()) return;
  sized.model = plan::with_vocabulary(sized.model, vocabulary);
  for (const plan::Contradiction& one : plan::find_contradictions(sized)) {
    add_mistake(loaded, one.keys, base::invalid_argument(one.message));
    loaded.mistakes.back().suggestion = one.suggestion;
    loaded.mistakes.back().keys = one.keys;
  }
}

/// Data that opens and fits, or a mistake more.
///
/// Result  in `damaged` whether the mistake is that a token file is not what it claims to be.
std::optional<Dataset> look_at_data(plan::LoadedConfig& loaded, bool& damaged) {
  const plan::Config& config = loaded.config;
  if (plan::data_kind(config) == plan::DataKind::kOwn) {
    add_mistake(loaded, {"model.preset"}, own_data(config));
    return std::nullopt;
  }
  if (plan::data_kind(config) == plan::DataKind::kPairs) {
    auto pairs = open_pairs(config);
    if (pairs.ok()) return *std::move(pairs);
    add_mistake(loaded, {"data.systems", "data.validation_fraction", "data.pairs"}, pairs.status());
    return std::nullopt;
  }
  if (plan::data_kind(config) == plan::DataKind::kImages) {
    auto images = open_images(config);
    if (images.ok()) return *std::move(images);
    damaged = images.status().code() == Code::kCorrupt;
    const bool is_file = !config.data.files.empty();
    add_mistake(loaded,
                is_file ? Keys{"data.files"}
                        : Keys{"data.image_count", "data.validation_fraction", "data.images"},
                images.status());
    return std::nullopt;
  }
  if (!config.data.files.empty()) {
    auto samples = open_token_samples(config);
    if (samples.ok()) {
      check_vocabulary_of_data(loaded, samples->num_ids);
      return *std::move(samples);
    }
    damaged = samples.status().code() == Code::kCorrupt;
    add_mistake(loaded, {"data.files"}, samples.status());
    return std::nullopt;
  }
  const std::string_view data_key = config.data.tokens.empty() ? "data.text" : "data.tokens";
  auto source = open_source(config.data);
  if (!source.ok()) {
    damaged = !config.data.tokens.empty() && source.status().code() == Code::kCorrupt;
    add_mistake(loaded, {data_key}, source.status());
    return std::nullopt;
  }
  if (Status known = check_vocabulary(*source, config.model.vocabulary); !known.ok()) {
    add_mistake(loaded, {"model.vocabulary"}, known);
    return std::nullopt;
  }
  auto dataset = cut_samples(*std::move(source), config.data, plan::resolved(config.model).block,
                             config.model.vocabulary);
  if (dataset.ok()) {
    check_vocabulary_of_data(loaded, dataset->num_ids);
    return *std::move(dataset);
  }
  add_mistake(loaded, {data_key, "model.block", "model.preset", "data.validation_fraction"},
              dataset.status());
  return std::nullopt;
}

/// That moments of an optimizer can be written where they are to be.
void look_at_offload(plan::LoadedConfig& loaded) {
  const plan::OffloadConfig& offload = loaded.config.offload;
  if (offload.optimizer != plan::Place::kFile || offload.folder.empty()) return;
  std::error_code error;
  const bool is_usable = std::filesystem::is_directory(offload.folder, error) &&
                         ::access(offload.folder.c_str(), W_OK | X_OK) == 0;
  if (is_usable) return;
  add_mistake(
      loaded, {"offload.folder"},
      base::invalid_argument(fmt::format(
          "'{}' is no folder that this user may write; make it, or name another", offload.folder)));
}

/// That ranks have GPUs, and NCCL between them.
void look_at_gpus(plan::LoadedConfig& loaded) {
  if (const Status there = compute::check_gpus(compute::find_gpus()); !there.ok()) {
    add_mistake(loaded, {"compute.device"}, there);
    return;
  }
  const auto nccl = comm::nccl::find_version();
  if (!nccl.ok()) add_mistake(loaded, {"comm.engine", "compute.device"}, nccl.status());
}

Code code_of(const plan::LoadedConfig& loaded, bool damaged) {
  if (loaded.mistakes.empty()) return Code::kOk;
  return damaged && loaded.mistakes.size() == 1 ? Code::kCorrupt : Code::kInvalidArgument;
}

}  // namespace

CheckedJob check_job(plan::LoadedConfig loaded, FolderUse use, const Workload* own) {
  CheckedJob job;
  const auto mistaken = [&](std::string_view key) { return is_mistaken(loaded, key); };
  bool damaged = false;
  if (own) {
    job.dataset = own->dataset;
  } else if (std::ranges::none_of(kDataKeys, mistaken)) {
    job.dataset = look_at_data(loaded, damaged);
  }
  if (job.dataset && loaded.mistakes.empty()) {
    const Status order = check_order(loaded.config, *job.dataset);
    if (!order.ok())
      add_mistake(loaded,
                  {"data.weights", "data.epoch_end", "data.cache", "data.pages", "data.order"},
                  order);
  }
  if (job.dataset && loaded.mistakes.empty() && !loaded.config.model.init.empty()) {
    const auto line = check_initial_file(loaded.config, own ? *own : Workload{*job.dataset});
    if (line.ok()) job.initial = *line;
    if (!line.ok()) add_mistake(loaded, {"model.init"}, line.status());
  }
  const bool on_gpus = loaded.config.compute.device == plan::Device::kCuda;
  if (on_gpus && !mistaken("compute.device")) look_at_gpus(loaded);
  if (!mistaken("offload.folder")) look_at_offload(loaded);
  if (use == FolderUse::kClaim && !mistaken("run.out")) {
    if (Status free = check_folder(loaded.config.run.out); !free.ok()) {
      add_mistake(loaded, {"run.out"}, free);
    }
  }
  plan::sort_by_place(loaded.mistakes);
  job.code = code_of(loaded, damaged);
  job.loaded = std::move(loaded);
  return job;
}

void check_engine(plan::LoadedConfig& loaded, StartedBy by) {
  using plan::Engine;
  const Engine engine = loaded.config.comm.engine;
  const auto refuse = [&](const std::string& why) {
    add_mistake(loaded, {"comm.engine"}, base::unsupported(why));
  };
  if (engine == Engine::kGloo && !comm::gloo::available()) {
    refuse("comm.engine is gloo, but this libtorch was built without it; set shm");
  } else if (engine == Engine::kMpi && !comm::mpi::available()) {
    refuse(
        "comm.engine is mpi, but this hanji was built without it: install MPI's headers and "
        "build again, or set shm");
  } else if (engine == Engine::kMpi && by == StartedBy::kUs) {
    refuse(
        "comm.engine is mpi, but ranks that this command starts are in no MPI world; start it as "
        "mpirun -n N hanji train, or set shm");
  } else if (engine == Engine::kHierarchical && by == StartedBy::kUs) {
    refuse(
        "comm.engine is hierarchical, which joins several hosts, but this command starts ranks on "
        "this one; start it by hanji run --nnodes on each, or set shm");
  }
}

}  // namespace hanji::train
