#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hanji::comm {

/// What the ranks of a group are called in messages: "3 (dp=1,tp=1)" on a mesh.
class RankNames {
 public:
  RankNames() = default;  ///< Their numbers.
  explicit RankNames(std::vector<std::string> by_rank) : by_rank_(std::move(by_rank)) {}

  std::string of(int rank) const {
    return rank < std::ssize(by_rank_) ? by_rank_[rank] : std::to_string(rank);
  }

  /// Of a group of these ranks, in their order; numbers are those in that group.
  RankNames part(const std::vector<int>& ranks) const {
    if (by_rank_.empty()) return {};
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(of(rank));
    return RankNames(std::move(names));
  }

 private:
  std::vector<std::string> by_rank_;
};

}  // namespace hanji::comm
