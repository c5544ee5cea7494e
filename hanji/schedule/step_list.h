#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/schedule/operation.h"

namespace hanji::schedule {

/// The unit of a rank's staging in the segment. Its slots and its results each have kSlotBytes
/// (staging.h); a list that is run there has slot_elements * element_bytes at most that large.
inline constexpr int64_t kStagingBytes = int64_t{1} << 20;

enum class StepKind : uint8_t {
  kSync,    ///< All ranks meet: what was written before is seen after.
  kCopy,    ///< from[0] to every `to`. A `to` that is the same memory as from[0] is left alone.
  kReduce,  ///< All `from`, combined by `tree`, to every `to`; rounded and averaged here, once.
  kSend,    ///< from[0] of this rank to `peer`; has left the buffer when the step ends.
  kRecv,    ///< to[0] of this rank from `peer`.
  /// As kReduce, but a partial result: not averaged, and rounded to the element type, for a
  /// kReduce further on. So 16-bit floats get other bits than from one kReduce of everything.
  kCombine,
};

/// Which buffer of a rank. kSlot and kResult are its two staging buffers of slot_elements each.
enum class Place : uint8_t { kInput, kOutput, kSlot, kResult };

/// Where an element range starts; its length is Step::count.
struct Operand {
  int rank = 0;
  Place place = Place::kInput;
  int part = 0;       ///< kInput of a tree_reduce: which partial buffer. Else 0.
  int64_t begin = 0;  ///< Elements from the start of that buffer (of that part).

  bool operator==(const Operand&) const = default;
};

struct Step {
  StepKind kind = StepKind::kSync;
  std::vector<Operand> from;
  std::vector<Operand> to;
  int64_t count = 0;
  /// kReduce, kCombine, postfix: i >= 0 pushes from[i], -1 combines the top two (left, right).
  std::vector<int> tree;
  int peer = -1;
  /// kSend, kRecv: under way at once with the step before, which is one too. Steps joined in a row
  /// are one group: it ends when all its messages have, and touches no element twice but to send.
  bool joined = false;

  bool operator==(const Step&) const = default;
};

/// The most ranks of a list.
inline constexpr int kMaxRanks = 10'240;

/// Which steps of a symmetric list are made: all ranks do the same there, each seen from its place, so
/// that the steps of one say how long the whole takes on a network that gives all ranks the same.
struct Kept {
  int rank = -1;  ///< The rank whose steps are made; -1: all ranks.
  /// Instead the steps along the longest path, under `rank` or the rank where that ends: each round
  /// moves the largest slice, and rounds in which `rank` waits for others are among them.
  bool longest_path = false;

  bool is_whole() const { return rank < 0; }
  bool operator==(const Kept&) const = default;
};

/// A collective as a value: what every rank does, in order. An engine runs it, cost prices it,
/// check() proves it; none of them decides anything.
///
/// Shape   elements of (input, output) per rank: barrier (0, 0); broadcast and all_reduce
///         (count, count); reduce (count, count at the root and 0 elsewhere); tree_reduce (count
///         for each partial of the rank's fold, count); send, of two ranks: (count, 0) and (0,
///         count). Routines with shares have blocks, one per
///         rank, one after another: all_gather (share, all shares); reduce_scatter (all shares,
///         share); gather (share, all shares at the root and 0 elsewhere); scatter (all shares at
///         the root and 0 elsewhere, share); all_to_all (what goes to each rank, what comes from
///         each rank). Unless `counts` says otherwise a share, or what goes from one rank to
///         another, is `count`.
///         Input and output may be the same memory if `in_place`: one's share its own block of
///         the wide buffer, tree_reduce's output part 0, else both alike.
/// Order   the first sync carries the call's descriptor, so before it a rank touches its own
///         buffers only, and after the last one no tensor of another rank. Staging of a call may
///         still be read after its last sync: an engine alternates between two sets by call.
struct StepList {
  Routine routine = Routine::kBarrier;
  std::string algorithm;
  int ranks = 0;
  int64_t count = 0;        ///< Of an uneven list the sum of `counts`.
  bool keeps_order = true;  ///< Each element is combined by pairwise_tree(ranks), whatever count.
  std::vector<std::vector<Step>> per_rank;
  int64_t slot_elements = 0;
  int root = 0;       ///< Broadcast and scatter: who gives; reduce and gather: who gets.
  int parameter = 0;  ///< Segments of a pipeline, ranks per host of a hierarchy.
  /// Uneven: the share of each rank; all_to_all: what rank i gives to rank j at i * ranks + j.
  std::vector<int64_t> counts;
  bool in_place = true;               ///< May run with input and output in one place.
  std::vector<layout::Range> owners;  ///< kTreeReduce: the grains of each rank.
  Kept kept;                          ///< Only whole lists can be run, checked or written.

  bool operator==(const StepList&) const = default;
};

/// Names used in JSON and messages: "sync", "copy", ...; "input", "output", "slot", "result".
std::string_view name_of(StepKind kind);
std::string_view name_of(Place place);

/// True for kSend and kRecv.
bool is_message(StepKind kind);
/// The end of the group of messages that begins at steps[begin], itself a message.
size_t end_of_group(const std::vector<Step>& steps, size_t begin);

/// Elements of the rank's buffer (of one part); 0 where the routine has none.
int64_t elements_of(const StepList& list, int rank, Place place);

/// Of a routine with shares: the block of each rank in a buffer that has all of them. Of an
/// all_to_all that is `rank`'s input or output; in the others the blocks lie alike everywhere.
std::vector<layout::Range> blocks_of(const StepList& list, int rank, Place place);

/// True if some step reads or writes the input or output of another rank: such a list needs
/// every tensor in the heap, others run with private tensors too.
bool touches_peer_tensors(const StepList& list);

/// True if some rank combines what is combined further: a result in 16-bit floats is then rounded
/// more than once.
bool makes_partial_sums(const StepList& list);

/// Syncs of rank 0; the same on every rank of a checked list.
int num_syncs(const StepList& list);

/// Elements that one rank moves.
struct Traffic {
  int64_t read = 0;     ///< By copies, reduces and sends.
  int64_t written = 0;  ///< By copies, reduces and receives.
  int64_t wire = 0;     ///< Of these, read from or written to another rank's memory, or sent.
};

Traffic traffic_of(const StepList& list, int rank);

/// Bytes that the busiest rank reads and writes.
int64_t traffic_bytes(const StepList& list, int64_t element_bytes);
/// Bytes that the busiest rank exchanges with others. all_reduce: about 2(p-1)/p of its tensor.
int64_t wire_bytes(const StepList& list, int64_t element_bytes);

}  // namespace hanji::schedule
