#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/cost/named_algorithm.h"
#include "hanji/cost/rates.h"
#include "hanji/schedule/operation.h"
#include "hanji/schedule/step_list.h"

namespace hanji::cost {

struct MessageQuery;
class MessageTable;

/// What distinguishes two calls for the choice: the op not at all.
struct Query {
  schedule::Routine routine = schedule::Routine::kBarrier;
  int64_t element_bytes = 1;
  int ranks = 1;
  int64_t count = 0;  ///< As in schedule::StepList.
  int root = 0;
  std::vector<int64_t> counts = {};  ///< Uneven shares, as in schedule::StepList.
  bool in_place = false;             ///< kAllToAll: input and output are one buffer on every rank.
  std::optional<DType> dtype = {};   ///< For its rate of reduction; else what its size stands for.
  bool in_heap = true;  ///< Where the tensors lie, for prices; choices assume the heap.

  bool operator==(const Query&) const = default;
};

/// The lists that serve one call.
struct Selection {
  /// The cheapest where every rank's tensors lie in the heap.
  std::shared_ptr<const schedule::StepList> in_heap;
  /// The cheapest that touches no tensor of a peer. Either the same list as in_heap, or of those
  /// that begin with a sync on every rank, as in_heap does then: an engine may decide between the
  /// two after that sync.
  std::shared_ptr<const schedule::StepList> if_private;
  std::string why;               ///< One sentence with the runner-up and both prices.
  double predicted_seconds = 0;  ///< Of in_heap.
};

/// A list that could serve a call, and its price.
struct Candidate {
  std::shared_ptr<const schedule::StepList> list;
  double seconds = 0;
};

/// All lists for ranks that share memory, the cheapest first.
/// Errors  throws Error as Chooser::select() does.
std::vector<Candidate> candidates_for(const Query& query, const Rates& rates);

/// Chooses among the algorithms of `schedule` by price. All of them combine each element in the
/// same order, so a choice never changes bits.
///
/// Order   all ranks of a group must use equal rates, or their lists will not meet.
/// Thread  any; select() locks.
class Chooser {
 public:
  /// `named` are taken where ranks share memory and the routine has them there, at any price.
  explicit Chooser(Rates rates, NamedAlgorithms named = {});
  ~Chooser();
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;

  /// Shape   count as in schedule::StepList. ranks >= 1, count >= 0.
  /// Result  kept for the next equal call; the reference is valid until kKept other calls have
  ///         been selected since. No allocation for a call that was kept.
  /// Errors  throws Error (invalid_argument) for kTreeReduce, whose list comes from its grain
  ///         tree, for a named algorithm that cannot carry so much, and where the makers of
  ///         `schedule` throw.
  const Selection& select(schedule::Routine routine, schedule::ReduceOp op, DType dtype, int ranks,
                          int64_t count, int root = 0);

  /// The same for any call, with uneven shares too.
  const Selection& select(const Query& query);

  /// The list of messages that serves the call, as choose_messages() of its size class says: sizes
  /// of one class, of which there are four between a size and its double, share an algorithm.
  /// Cost    the simulation of every candidate for the first call of a class, a look-up and the
  ///         making of the list for the others.
  /// Errors  as choose_messages().
  Result<schedule::StepList> select_messages(const MessageQuery& query);

  const Rates& rates() const { return rates_; }
  /// What the user named for the routine; empty: nothing.
  std::string_view named(schedule::Routine routine) const;

  static constexpr size_t kKept = 1024;

 private:
  struct Cache;
  const Rates rates_;
  const NamedAlgorithms named_;
  std::unique_ptr<Cache> cache_;
  std::shared_ptr<MessageTable> messages_;
};

}  // namespace hanji::cost
