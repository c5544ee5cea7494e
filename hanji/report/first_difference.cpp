#include <fmt/format.h>

#include <algorithm>

#include "hanji/report/certificate.h"

namespace hanji::report {
namespace {

/// Of one tensor in what a process saw; nothing where it saw none of this name.
std::optional<uint64_t> value_of(const ObservedStep& step, const Digest& tensor) {
  const auto found = std::ranges::find_if(step.digests, [&](const Digest& one) {
    return one.quantity == tensor.quantity && one.name == tensor.name;
  });
  if (found == step.digests.end()) return std::nullopt;
  return found->value;
}

using Steps = std::vector<const ObservedStep*>;

/// Every tensor that any of them saw, in the order in which a difference is looked for.
std::vector<Digest> all_tensors(const ObservedStep& expected, const Steps& ranks) {
  std::vector<Digest> all = expected.digests;
  for (const ObservedStep* rank : ranks) {
    for (const Digest& tensor : rank->digests) {
      if (!value_of(expected, tensor)) all.push_back(tensor);
    }
  }
  std::ranges::stable_sort(all, {}, &Digest::quantity);
  return all;
}

bool differs(const ObservedStep& expected, const ObservedStep& actual, const Digest& tensor) {
  return value_of(expected, tensor) != value_of(actual, tensor);
}

/// The backward of the lowest rank and grain that is not as the reference's.
std::optional<FirstDifference::Backward> wrong_backward(const ObservedStep& expected,
                                                        const Steps& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [of, value] : ranks[rank]->backwards) {
      const auto right = expected.backwards.find(of);
      if (right != expected.backwards.end() && right->second == value) continue;
      return FirstDifference::Backward{static_cast<int>(rank), of.grain};
    }
  }
  return std::nullopt;
}

std::optional<FirstDifference> compare(const ObservedStep& expected, const Steps& ranks) {
  const auto same = [&](const ObservedStep* rank) { return rank->digests == expected.digests; };
  if (std::ranges::all_of(ranks, same)) return std::nullopt;
  const std::vector<Digest> all = all_tensors(expected, ranks);
  const auto first = std::ranges::find_if(all, [&](const Digest& tensor) {
    return std::ranges::any_of(
        ranks, [&](const ObservedStep* rank) { return differs(expected, *rank, tensor); });
  });
  if (first == all.end()) return std::nullopt;
  FirstDifference found{.step = expected.step, .quantity = first->quantity, .tensor = first->name};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (differs(expected, *ranks[rank], *first)) found.ranks.push_back(static_cast<int>(rank));
    found.replicas_agree &= !differs(*ranks[0], *ranks[rank], *first);
  }
  for (const Digest& tensor : all) {
    if (tensor.quantity != first->quantity) continue;
    ++found.of_tensors;
    found.num_tensors += differs(expected, *ranks[found.ranks.front()], tensor) ? 1 : 0;
  }
  found.backward = wrong_backward(expected, ranks);
  return found;
}

}  // namespace

Result<std::optional<FirstDifference>> first_difference(const ObservedRun& expected,
                                                        std::span<const ObservedRun> ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].steps.size() == expected.steps.size()) continue;
    return base::invalid_argument(
        fmt::format("rank {} was seen {} times, the one process {} times; let both run all steps",
                    rank, ranks[rank].steps.size(), expected.steps.size()));
  }
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    Steps steps;
    for (const ObservedRun& rank : ranks) steps.push_back(&rank.steps[i]);
    if (auto found = compare(expected.steps[i], steps)) return found;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].state_sha256 == expected.state_sha256) continue;
    return base::internal(fmt::format(
        "rank {} has the state {}, the one process {}, though every tensor has the same XXH3; "
        "compare their checkpoints with hanji ckpt diff",
        rank, ranks[rank].state_sha256, expected.state_sha256));
  }
  return std::optional<FirstDifference>();
}

}  // namespace hanji::report
