#include "hanji/train/test_job_table.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <sstream>

#include "hanji/base/status.h"
#include "hanji/base/units.h"
#include "hanji/compute/attention.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/test_plan.h"
#include "hanji/train/count_facts.h"

namespace hanji::train::job_table {
namespace {

enum { kModel, kMesh, kData, kBits, kOption, kHosts };

constexpr int kMaxRanks = 8;

constexpr std::array kOfEveryJob = {
    "train.steps=2",          "train.clip=0.5",    "train.evaluate_batches=1",
    "train.warmup_steps=0",   "compute.threads=1", "train.learning_rate=1e-2",
    "comm.bucket_bytes=16384"};

const std::array<Property, 6>& table() {
  static const std::array<Property, 6> properties = {{
      {"model",
       {{.name = "gpt",
         .of_job = {"model.preset=nano", "model.layers=2", "model.heads=4", "model.width=32",
                    "model.block=16", "data.vocabulary=byte", "train.global_batch=8",
                    "model.dropout=0.1"}},
        {.name = "resnet",
         .of_job = {"model.preset=resnet-tiny", "model.width=4", "data.image_size=12",
                    "data.image_count=500"}},
        {.name = "pairs",
         .of_job = {"model.preset=evoformer-tiny", "model.layers=2", "model.width=8",
                    "model.dropout=0.25", "data.residues=8", "data.sequences=5", "data.systems=60",
                    "train.global_batch=4"}}}},
      {"mesh",
       {{.name = "dp"},
        {.name = "tp", .of_plan = {"mesh.tp=2"}, .ranks = 2},
        {.name = "sequence", .of_plan = {"mesh.tp=2", "parallel.sequence=true"}, .ranks = 2},
        {.name = "ulysses", .of_plan = {"mesh.cp=2", "parallel.context=ulysses"}, .ranks = 2},
        {.name = "ring",
         .of_plan = {"mesh.cp=2", "parallel.context=ring"},
         .of_job = {"model.dropout=0"},
         .ranks = 2},
        {.name = "axial", .of_plan = {"mesh.axial=2"}, .ranks = 2},
        {.name = "pp", .of_plan = {"mesh.pp=2"}, .ranks = 2},
        {.name = "zbv", .of_plan = {"mesh.pp=2", "pipeline.schedule=zbv"}, .ranks = 2},
        {.name = "pp_tp", .of_plan = {"mesh.pp=2", "mesh.tp=2"}, .ranks = 4},
        {.name = "pp_cp", .of_plan = {"mesh.pp=2", "mesh.cp=2"}, .ranks = 4},
        {.name = "cp_tp", .of_plan = {"mesh.cp=2", "mesh.tp=2"}, .ranks = 4}}},
      {"data",
       {{.name = "ddp"},
        {.name = "server", .of_plan = {"parallel.data=server"}},
        {.name = "zero1", .of_plan = {"parallel.data=zero1"}},
        {.name = "zero2", .of_plan = {"parallel.data=zero2"}},
        {.name = "zero3", .of_plan = {"parallel.data=zero3"}},
        {.name = "hsdp",
         .of_plan = {"parallel.data=hsdp", "mesh.dp=2", "mesh.fsdp=2"},
         .coordinates = 4}}},
      {"bits",
       {{.name = "float64", .of_job = {"compute.dtype=float64"}},
        {.name = "stable", .of_job = {"train.bits=stable"}},
        {.name = "stable_bf16",
         .of_job = {"train.bits=stable", "compute.dtype=bf16", "compute.slow_dtype=true"}}}},
      {"option",
       {{.name = "plain"},
        {.name = "alone", .coordinates = 1},
        {.name = "three", .coordinates = 3},
        {.name = "recompute", .of_plan = {"compute.recompute=true"}},
        {.name = "accumulate"},
        {.name = "uneven", .of_plan = {"train.split=[0.25, 0.75]"}},
        {.name = "weights", .of_plan = {"parallel.moves=weights"}},
        {.name = "copies", .of_plan = {"parallel.share_memory=false"}},
        {.name = "by_step", .of_plan = {"parallel.reshard=step"}}}},
      {"hosts", {{.name = "one_host"}, {.name = "two_hosts"}, {.name = "uneven_hosts"}}},
  }};
  return properties;
}

constexpr std::string_view kRows[] = {
    "gpt dp server stable uneven one_host",
    "gpt dp zero2 stable_bf16 three one_host",
    "gpt dp zero3 stable by_step one_host",
    "gpt dp hsdp stable copies two_hosts",
    "gpt tp ddp float64 three one_host",
    "gpt tp server float64 plain one_host",
    "gpt tp server stable accumulate one_host",
    "gpt tp server stable_bf16 alone one_host",
    "gpt tp zero1 float64 uneven one_host",
    "gpt tp zero2 float64 weights two_hosts",
    "gpt tp zero3 stable recompute one_host",
    "gpt tp zero3 stable_bf16 copies one_host",
    "gpt tp hsdp float64 by_step uneven_hosts",
    "gpt sequence ddp stable uneven one_host",
    "gpt sequence server float64 recompute one_host",
    "gpt sequence server float64 weights one_host",
    "gpt sequence zero1 float64 plain one_host",
    "gpt sequence zero1 stable_bf16 accumulate uneven_hosts",
    "gpt sequence zero2 float64 three one_host",
    "gpt sequence zero2 stable_bf16 alone two_hosts",
    "gpt sequence zero3 stable_bf16 by_step one_host",
    "gpt sequence hsdp float64 weights one_host",
    "gpt sequence hsdp stable copies one_host",
    "gpt ulysses ddp stable uneven two_hosts",
    "gpt ulysses zero1 float64 plain one_host",
    "gpt ulysses zero1 stable_bf16 alone one_host",
    "gpt ulysses zero2 stable_bf16 three one_host",
    "gpt ulysses zero2 stable_bf16 accumulate uneven_hosts",
    "gpt ulysses zero3 float64 copies one_host",
    "gpt ulysses hsdp stable recompute one_host",
    "gpt ulysses hsdp stable by_step one_host",
    "gpt ring ddp float64 alone one_host",
    "gpt ring ddp float64 accumulate one_host",
    "gpt ring zero1 float64 recompute one_host",
    "gpt ring zero2 float64 uneven uneven_hosts",
    "gpt ring zero3 float64 plain two_hosts",
    "gpt ring zero3 float64 three one_host",
    "gpt ring zero3 float64 by_step uneven_hosts",
    "gpt ring hsdp float64 copies one_host",
    "gpt pp zero2 float64 uneven one_host",
    "gpt zbv ddp stable_bf16 plain uneven_hosts",
    "gpt pp_tp ddp float64 accumulate two_hosts",
    "gpt pp_tp zero1 stable uneven one_host",
    "gpt pp_tp zero1 stable_bf16 plain one_host",
    "gpt pp_tp zero2 float64 recompute one_host",
    "gpt pp_tp zero3 float64 weights one_host",
    "gpt pp_tp zero3 float64 by_step one_host",
    "gpt pp_tp zero3 stable alone one_host",
    "gpt pp_tp zero3 stable_bf16 copies one_host",
    "gpt pp_cp ddp float64 recompute one_host",
    "gpt pp_cp ddp stable_bf16 alone one_host",
    "gpt pp_cp zero1 stable uneven one_host",
    "gpt pp_cp zero2 stable plain one_host",
    "gpt pp_cp zero3 float64 copies one_host",
    "gpt pp_cp zero3 stable accumulate one_host",
    "gpt pp_cp zero3 stable_bf16 by_step two_hosts",
    "gpt cp_tp ddp float64 weights uneven_hosts",
    "gpt cp_tp zero1 float64 weights one_host",
    "gpt cp_tp zero1 stable_bf16 recompute two_hosts",
    "gpt cp_tp zero2 stable_bf16 plain one_host",
    "gpt cp_tp zero2 stable_bf16 uneven one_host",
    "gpt cp_tp zero3 stable alone one_host",
    "gpt cp_tp zero3 stable accumulate one_host",
    "gpt cp_tp zero3 stable by_step one_host",
    "gpt cp_tp zero3 stable_bf16 copies one_host",
    "resnet dp ddp stable plain one_host",
    "resnet dp server stable three one_host",
    "resnet dp zero3 stable recompute uneven_hosts",
    "resnet pp zero1 stable alone one_host",
    "resnet pp zero2 stable accumulate one_host",
    "resnet pp zero3 stable by_step one_host",
    "resnet zbv ddp stable recompute one_host",
    "resnet zbv zero1 stable three one_host",
    "resnet zbv zero1 stable uneven two_hosts",
    "resnet zbv hsdp stable accumulate one_host",
    "pairs dp server float64 plain one_host",
    "pairs dp zero1 stable_bf16 accumulate one_host",
    "pairs dp hsdp stable_bf16 copies uneven_hosts",
    "pairs axial ddp float64 recompute uneven_hosts",
    "pairs axial ddp stable accumulate one_host",
    "pairs axial zero1 float64 recompute one_host",
    "pairs axial zero2 stable alone one_host",
    "pairs axial zero2 stable three two_hosts",
    "pairs axial zero3 stable_bf16 uneven one_host",
    "pairs axial hsdp stable_bf16 plain one_host",
    "pairs pp ddp stable three uneven_hosts",
    "pairs pp zero3 stable_bf16 recompute one_host",
    "pairs pp zero3 stable_bf16 copies one_host",
    "pairs pp hsdp stable_bf16 plain two_hosts",
    "pairs zbv zero2 stable accumulate one_host",
    "pairs zbv zero3 float64 by_step one_host",
    "pairs zbv zero3 stable_bf16 alone uneven_hosts",
    "pairs zbv zero3 stable_bf16 copies one_host",
};

const Value& value(const Row& row, size_t property) {
  return table()[property].values[row[property]];
}

/// Blocks, for sums that ranks cut: of what the model's axes cut.
std::vector<std::string_view> blocks(const Row& row) {
  if (!is_stable(row)) return {};
  if (value(row, kModel).name == "gpt") return {"train.cuts.features=4", "train.cuts.tokens=4"};
  if (value(row, kModel).name == "pairs") return {"train.cuts.tokens=4"};
  return {};
}

/// Micro-batches below a data coordinate's share, in grains of the model.
std::vector<std::string_view> accumulation(const Row& row) {
  if (value(row, kOption).name != "accumulate") return {};
  return {value(row, kModel).name == "resnet" ? "train.micro_batch=16" : "train.micro_batch=1"};
}

int num_ranks(const Row& row) {
  int ranks = 1, coordinates = 2;
  for (size_t i = 0; i < row.size(); ++i) {
    ranks *= value(row, i).ranks;
    if (value(row, i).coordinates > 0) coordinates = value(row, i).coordinates;
  }
  return ranks * coordinates;
}

std::vector<int> hosts_of(const Row& row) {
  const int ranks = num_ranks(row);
  if (row[kHosts] == 0) return {ranks};
  const int second = row[kHosts] == 1 ? ranks / 2 : 1;
  return {ranks - second, second};
}

/// In `run` each micro-batch has statistics of its own, other ones on other ranks.
bool has_its_own_statistics(const Row& row) {
  return value(row, kModel).name == "resnet" && !is_stable(row);
}

Result<plan::Config> config_of(const Row& row, bool as_ranks) {
  std::vector<plan::Override> all;
  const auto add = [&](std::string_view one) { all.push_back({std::string(one)}); };
  for (const char* one : kOfEveryJob) add(one);
  for (size_t i = 0; i < row.size(); ++i) {
    for (const std::string_view one : value(row, i).of_job) add(one);
    if (!as_ranks) continue;
    for (const std::string_view one : value(row, i).of_plan) add(one);
  }
  for (const std::string_view one : blocks(row)) add(one);
  for (const std::string_view one : accumulation(row)) add(one);
  add(fmt::format("run.ranks={}", as_ranks ? num_ranks(row) : 1));
  if (has_its_own_statistics(row)) {
    return base::unsupported("no micro-batch has the statistics of another");
  }
  if (num_ranks(row) == 1 || num_ranks(row) > kMaxRanks) {
    return base::unsupported(
        fmt::format("{}; a row has 2 to {}", base::counted(num_ranks(row), "rank"), kMaxRanks));
  }
  const plan::LoadedConfig loaded = plan::parse_config("", "row", all);
  if (!loaded.mistakes.empty()) return base::invalid_argument(loaded.mistakes[0].to_string());
  return loaded.config;
}

/// What the counted facts of a model depend on: model, mesh and dtype, and two options.
plan::ModelFacts counted(const plan::Config& config, const Row& row) {
  static std::map<std::string, plan::ModelFacts> kept;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {}", value(row, kModel).name,
                  config.run.ranks > 1 ? value(row, kMesh).name : "", config.train.micro_batch,
                  value(row, kBits).name, config.compute.recompute, name_of(config.parallel.moves),
                  name_of(config.parallel.data));
  auto found = kept.find(key);
  if (found == kept.end()) {
    found = kept.emplace(key, count_facts(config, Workload{dataset_of(row)})).first;
  }
  return found->second;
}

/// Jobs of bf16 attend by tiles where this processor has them, all others by vectors.
plan::Attention attention_of(plan::Precision dtype) {
  const bool by_tiles = compute::check_attention(plan::Attention::kTiles, dtype).ok();
  return by_tiles ? plan::Attention::kTiles : plan::Attention::kMath;
}

Result<plan::Plan> plan_of(const Row& row, bool as_ranks) {
  HANJI_ASSIGN_OR_RETURN(const plan::Config config, config_of(row, as_ranks));
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.config = config;
  inputs.data = dataset_of(row).facts();
  inputs.kernels = {plan::Gemm::kMkl, attention_of(config.compute.dtype), config.compute.dtype};
  if (as_ranks && row[kHosts] > 0) inputs.ranks_per_host = hosts_of(row);
  if (plan::needs_counting(config)) inputs.model = counted(config, row);
  return plan::make_plan(inputs);
}

}  // namespace

std::span<const Property> properties() { return table(); }

std::string to_string(const Row& row) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : " ", value(row, i).name);
  }
  return text;
}

Row row_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  Row row;
  for (const Property& property : table()) {
    std::string word;
    words >> word;
    size_t i = 0;
    while (i < property.values.size() && property.values[i].name != word) ++i;
    if (i == property.values.size()) {
      throw Error(base::invalid_argument(
          fmt::format("'{}': no {} is called {}", text, property.name, word)));
    }
    row.push_back(i);
  }
  return row;
}

const Dataset& dataset_of(const Row& row) {
  static std::map<size_t, Dataset> opened;
  const auto found = opened.find(row[kModel]);
  if (found != opened.end()) return found->second;
  const Row plain = {row[kModel], 0, 0, 1, 0, 0};
  return opened.emplace(row[kModel], open_dataset(config_of(plain, false).or_throw()).or_throw())
      .first->second;
}

std::vector<Row> rows() {
  std::vector<Row> rows;
  for (const std::string_view text : kRows) rows.push_back(row_of(text));
  return rows;
}

bool is_stable(const Row& row) { return value(row, kBits).name.starts_with("stable"); }

Result<PlannedRow> planned(const Row& row) {
  HANJI_ASSIGN_OR_RETURN(plan::Plan alone, plan_of(row, false));
  HANJI_ASSIGN_OR_RETURN(plan::Plan ranks, plan_of(row, true));
  return PlannedRow{std::move(alone), std::move(ranks), hosts_of(row)};
}

}  // namespace hanji::train::job_table
