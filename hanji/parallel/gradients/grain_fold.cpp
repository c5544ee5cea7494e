#include "hanji/parallel/gradients/grain_fold.h"

#include <algorithm>
#include <string>
#include <utility>

#include "hanji/base/status.h"

namespace hanji::parallel {

GrainFold::GrainFold(int64_t num_grains, const std::vector<layout::Range>& owners, int rank,
                     const std::vector<int64_t>& order)
    : tree_(schedule::grain_tree(num_grains, owners)), rank_(rank) {
  if (order.empty()) return;
  schedule::Fold& own = tree_.ranks[rank_];
  own = schedule::fold_in_order(std::move(own.partials), order);
}

int GrainFold::num_buffers() const { return std::max(1, tree_.ranks[rank_].num_buffers); }

void GrainFold::begin(int64_t grain) {
  const std::string name = "grain(" + std::to_string(grain) + ")";
  if (open_) {
    throw Error(base::invalid_argument(
        name + ": the backward() of grain " + std::to_string(step().grain) +
        " has not ended; run it, or call finish() if it touches no parameter"));
  }
  const layout::Range own = grains();
  if (next_ == steps().size() || step().grain != grain) {
    const std::string due = own.size() == 0 ? "this rank owns none"
                                            : "grain " + std::to_string(step().grain) + " is due";
    throw Error(base::invalid_argument(name + ": " + due + "; rank " + std::to_string(rank_) +
                                       " takes grains [" + std::to_string(own.begin) + ", " +
                                       std::to_string(own.end) + ") in order"));
  }
  open_ = true;
}

void GrainFold::end() {
  open_ = false;
  if (++next_ >= steps().size()) next_ = 0;
}

}  // namespace hanji::parallel
