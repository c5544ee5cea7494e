#include "hanji/parallel/pipeline/stages.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "hanji/base/status.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/stats.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

/// The stages that read a parameter, in order; none: no layer reads it.
std::vector<int> stages_that_read(const at::Tensor& parameter, const Stages& stages,
                                  const layers::Model& model) {
  std::vector<int> found;
  for (int stage = 0; stage <= stages.last(); ++stage) {
    const layout::Range layers = stages.layers[stage];
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      const auto read = model.layer_parameters(i);
      if (std::ranges::none_of(read, [&](const auto& one) { return one.is_same(parameter); })) {
        continue;
      }
      found.push_back(stage);
      break;
    }
  }
  return found;
}

/// The ranks that read a parameter, that of its first stage first.
std::vector<int> ranks_that_read(const at::Tensor& parameter, const Stages& stages,
                                 const layers::Model& model) {
  std::vector<int> ranks;
  for (const int stage : stages_that_read(parameter, stages, model)) {
    if (std::ranges::find(ranks, stages.ranks[stage]) == ranks.end()) {
      ranks.push_back(stages.ranks[stage]);
    }
  }
  return ranks;
}

}  // namespace

bool Stages::adds_gradients(const schedule::Action& action) const {
  return schedule::adds_gradients(action.kind, splits_at(action.stage));
}

int Stages::of_layer(int64_t layer) const {
  const auto found = std::ranges::find_if(
      layers, [layer](const layout::Range& range) { return layer < range.end; });
  return static_cast<int>(found - layers.begin());
}

int Stages::first_rank_of(const at::Tensor& parameter, const layers::Model& model) const {
  const std::vector<int> readers = stages_that_read(parameter, *this, model);
  return ranks[readers.empty() ? 0 : readers[0]];
}

void check_stages(const Stages& stages, const layers::Model& model, int num_ranks) {
  std::string mistakes;
  const auto add = [&](const std::string& mistake) { mistakes += "\n  " + mistake; };
  if (stages.layers.size() != stages.ranks.size()) {
    add(fmt::format("{} stages have {} ranks", stages.layers.size(), stages.ranks.size()));
  }
  if (!stages.splits.empty() && stages.splits.size() != stages.layers.size()) {
    add(fmt::format("{} stages have {} splits", stages.layers.size(), stages.splits.size()));
  }
  int64_t next = 0;
  for (size_t i = 0; i < stages.layers.size(); ++i) {
    const layout::Range layers = stages.layers[i];
    if (layers.begin != next || layers.size() < 1) {
      add(fmt::format("stage {} has layers [{}, {}); layer {} is next", i, layers.begin, layers.end,
                      next));
    }
    next = layers.end;
  }
  if (next != model.num_layers()) {
    add(fmt::format("the last stage ends at layer {} of {}", next, model.num_layers()));
  }
  for (const int rank : stages.ranks) {
    if (rank < 0 || rank >= num_ranks) add(fmt::format("rank {} of {}", rank, num_ranks));
  }
  if (mistakes.empty()) return;
  throw Error(base::invalid_argument(
      "stages: consecutive layers, at least one each, and a rank of the group:" + mistakes));
}

void keep_stages_of(int rank, const Stages& stages, layers::Model& model) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& one : distinct_parameters(model)) {
    const std::vector<int> readers = stages_that_read(one.tensor, stages, model);
    if (readers.empty() ||
        std::ranges::any_of(readers, [&](int stage) { return stages.ranks[stage] == rank; })) {
      continue;
    }
    at::Tensor parameter = one.tensor;
    parameter.requires_grad_(false);
    parameter.set_data(without_memory(
        parameter.sizes(), parameter.options(),
        fmt::format("parameter {} is in the memory of rank {} of the pipeline, which computes "
                    "stage {}; rank {} reads it",
                    one.name, stages.ranks[readers[0]], readers[0], rank)));
  }
}

TiedParameters::TiedParameters(const layers::Model& model, const Stages& stages,
                               const comm::Group& group) {
  std::map<std::vector<int>, comm::Group> groups;
  for (const NamedParameter& one : distinct_parameters(model)) {
    const std::vector<int> ranks = ranks_that_read(one.tensor, stages, model);
    if (ranks.size() < 2) continue;
    auto found = groups.find(ranks);
    const bool has_it = std::ranges::find(ranks, group.rank()) != ranks.end();
    if (found == groups.end()) {
      std::vector<int> members = ranks;
      if (!has_it) {
        members.clear();
        for (int rank = 0; rank < group.size(); ++rank) {
          if (std::ranges::find(ranks, rank) == ranks.end()) members.push_back(rank);
        }
      }
      found = groups.emplace(ranks, group.subgroup(members, has_it ? "tied" : "not tied")).first;
      if (has_it) groups_.push_back(found->second);
    }
    if (has_it) tied_.push_back({one, found->second});
  }
  for (const Tied& tied : tied_) broadcast_from_first({tied.parameter}, tied.group);
}

void TiedParameters::sum(const std::vector<NamedParameter>& parameters,
                         const std::vector<at::Tensor>& gradients) const {
  for (const Tied& tied : tied_) {
    const auto found = std::ranges::find_if(parameters, [&](const NamedParameter& one) {
      return one.tensor.is_same(tied.parameter.tensor);
    });
    if (found == parameters.end()) {
      throw Error(base::invalid_argument(fmt::format(
          "tied parameter {}: its gradient is not among the {} that were given; give those of all "
          "parameters that learn",
          tied.parameter.name, gradients.size())));
    }
    at::Tensor gradient = gradients[found - parameters.begin()];
    if (!gradient.defined()) continue;
    comm::all_reduce(gradient, tied.group, {.label = tied.parameter.name}).wait();
  }
}

bool TiedParameters::is_first(const at::Tensor& parameter) const {
  return std::ranges::none_of(tied_, [&](const Tied& tied) {
    return tied.parameter.tensor.is_same(parameter) && tied.group.rank() != 0;
  });
}

comm::Stats TiedParameters::stats() const {
  comm::Stats sum{.times = comm::CallTimes()};
  for (const comm::Group& group : groups_) comm::add(sum, group.stats());
  return sum;
}

std::vector<NamedParameter> TiedParameters::parameters() const {
  std::vector<NamedParameter> all;
  for (const Tied& tied : tied_) all.push_back(tied.parameter);
  return all;
}

void TiedParameters::check_same(const std::vector<NamedParameter>& values) const {
  for (const Tied& tied : tied_) {
    const auto found = std::ranges::find(values, tied.parameter.name, &NamedParameter::name);
    check_same_values({found == values.end() ? tied.parameter : *found}, tied.group);
  }
}

}  // namespace hanji::parallel
