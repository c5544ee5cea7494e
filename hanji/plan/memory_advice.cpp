#include "hanji/plan/memory_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/rank_memory.h"

namespace hanji::plan {
namespace {

/// Of a rank's memory: state, then what a micro-batch takes, then samples.
constexpr std::array<std::string_view, 9> kCategories = {
    "optimizer", "parameters",      "parameter shards",
    "gradients", "gradient shards", "activations",
    "workspace", "flows",           "data"};

using Categories = std::span<const std::string_view>;

constexpr Categories kOptimizerOnly = Categories(kCategories).first(1);
constexpr Categories kState = Categories(kCategories).first(5);
constexpr Categories kActivations = Categories(kCategories).subspan(5, 3);
constexpr Categories kStateAndActivations = Categories(kCategories).first(8);
constexpr Categories kData = Categories(kCategories).last(1);

/// Of a row's logits and of outer products, to begin with.
constexpr int64_t kFirstChunkBytes = int64_t{16} << 20;
/// A part of the memory that is worth changing.
constexpr int64_t kSmallestPart = 10;

/// A key to set, and what it changes.
struct Remedy {
  std::string words;
  Categories lowers;
  std::function<void(Config&)> set;
};

int64_t bytes_of(const Plan& plan, Categories categories) {
  int64_t bytes = 0;
  for (const MemoryLine& line : plan.memory) {
    const bool counts = std::ranges::find(categories, line.category) != categories.end();
    bytes += counts ? line.bytes : 0;
  }
  return bytes;
}

/// The least number above 1 that divides `count`.
int64_t least_divisor(int64_t count) {
  int64_t divisor = 2;
  while (count % divisor != 0) ++divisor;
  return divisor;
}

/// Of axes by which ranks share what each data coordinate has whole.
void add_axes(const Plan& plan, std::vector<Remedy>& remedies) {
  const int coordinates = plan.mesh.num_data_coordinates();
  if (coordinates == 1) return;
  const int64_t more = least_divisor(coordinates);
  const auto add = [&](const char* name, int64_t MeshConfig::*degree, Categories lowers) {
    const int64_t wanted = plan.config.mesh.*degree * more;
    remedies.push_back({fmt::format("mesh.{} = {}", name, wanted), lowers, [=, &plan](Config& c) {
                          c.mesh.*degree = wanted;
                          c.mesh.dp = c.mesh.fsdp = kAuto;
                          c.run.ranks = plan.ranks;
                        }});
  };
  add("axial", &MeshConfig::axial, kActivations);
  add("tp", &MeshConfig::tp, kStateAndActivations);
  add("cp", &MeshConfig::cp, kActivations);
  if (std::ssize(plan.model.layers) > 1) add("pp", &MeshConfig::pp, kStateAndActivations);
}

void add_state(const Plan& plan, std::vector<Remedy>& remedies) {
  const bool has_peers = plan.mesh.num_data_coordinates() * ranks_of_terms(plan) > 1;
  if (has_peers && plan.config.parallel.data != Sharding::kZero3) {
    remedies.push_back({"parallel.data = \"zero3\"", kState, [](Config& c) {
                          c.parallel.data = Sharding::kZero3;
                          c.mesh.dp = c.mesh.fsdp = kAuto;
                        }});
  }
  if (plan.config.offload.optimizer == Place::kFile) return;
  remedies.push_back(
      {"offload.optimizer = \"file\" with offload.folder", kOptimizerOnly, [](Config& c) {
         c.offload.optimizer = Place::kFile;
         c.offload.folder = ".";
       }});
}

void add_activations(const Plan& plan, const Config& asked, std::vector<Remedy>& remedies) {
  const bool is_pair_model = is_read(asked.model, "model.chunk_bytes");
  if (!asked.compute.recompute) {
    remedies.push_back(
        {"compute.recompute = true", kActivations, [](Config& c) { c.compute.recompute = true; }});
  }
  if (is_pair_model &&
      (asked.model.chunk_bytes == 0 || asked.model.chunk_bytes > kFirstChunkBytes)) {
    remedies.push_back({"model.chunk_bytes = \"16MiB\"", kActivations,
                        [](Config& c) { c.model.chunk_bytes = kFirstChunkBytes; }});
  }
  const int64_t grain = asked.train.grain;
  if (asked.train.micro_batch != kAuto && plan.micro_batch > grain) {
    remedies.push_back({"train.micro_batch = \"auto\"", kActivations,
                        [](Config& c) { c.train.micro_batch = kAuto; }});
  }
  if (plan.mesh.degree("pp") > 1 && plan.micro_batch > grain) {
    const int64_t count = largest_share(plan) / grain;
    remedies.push_back({fmt::format("pipeline.micro_batches = {}", count), kActivations,
                        [count](Config& c) { c.pipeline.micro_batches = count; }});
  }
  const int64_t least = family_of(asked.model).smallest_grain;
  if (plan.micro_batch == grain && grain > least) {
    remedies.push_back({fmt::format("train.grain = {}", least), kActivations, [least](Config& c) {
                          c.train.grain = least;
                          c.train.micro_batch = kAuto;
                        }});
  }
}

void add_data(const Config& asked, std::vector<Remedy>& remedies) {
  if (asked.data.prefetch > 0) {
    remedies.push_back(
        {"data.prefetch = \"auto\"", kData, [](Config& c) { c.data.prefetch = kAuto; }});
  }
  if (asked.data.cache == FileCache::kProcess) {
    remedies.push_back({"data.cache = \"os\"", kData, [](Config& c) {
                          c.data.cache = FileCache::kOs;
                          if (c.data.order != SampleOrder::kQuasi)
                            c.data.pages = DataConfig().pages;
                        }});
  }
}

}  // namespace

std::string memory_advice(const Plan& plan, const Config& asked,
                          std::span<const std::string_view> cut_axes) {
  std::vector<Remedy> remedies;
  add_activations(plan, asked, remedies);
  add_state(plan, remedies);
  add_axes(plan, remedies);
  add_data(asked, remedies);
  const int64_t all = total_bytes(plan.memory);
  std::erase_if(remedies, [&](const Remedy& one) {
    Config changed = asked;
    one.set(changed);
    return kSmallestPart * bytes_of(plan, one.lowers) < all ||
           !find_contradictions(changed, cut_axes).empty();
  });
  std::ranges::stable_sort(remedies, std::greater(),
                           [&](const Remedy& one) { return bytes_of(plan, one.lowers); });
  std::vector<std::string> words;
  for (const Remedy& one : remedies) words.push_back(one.words);
  const bool shares_host =
      plan.mesh.num_data_coordinates() > 1 && asked.compute.device == Device::kCpu;
  const std::string others = shares_host ? "fewer ranks or a smaller model" : "a smaller model";
  if (words.empty()) return "take " + others;
  return fmt::format("set {}{}, or take {}", words.size() > 1 ? "one of " : "",
                     fmt::join(words, ", "), others);
}

}  // namespace hanji::plan
