#include "hanji/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "hanji/schedule/internal/address_map.h"
#include "hanji/schedule/internal/formula.h"
#include "hanji/schedule/internal/postcondition.h"
#include "hanji/schedule/internal/symbols.h"
#include "hanji/schedule/staging.h"

namespace hanji::schedule {
namespace {

using namespace internal;

Status refuse(std::string message) { return base::invalid_argument(std::move(message)); }

/// Runs a list on symbols, epoch by epoch, rank after rank, which is as good as any order once
/// no two of them touch the same element.
class SymbolicRun {
 public:
  SymbolicRun(const StepList& list, Aliasing aliasing)
      : list_(list),
        parts_(parts_per_rank(list)),
        addresses_(list, parts_, aliasing),
        buffers_(addresses_.num_spaces()),
        next_(list.ranks, 0),
        open_(list.ranks),
        last_epoch_(num_syncs(list)) {}

  Status run();

 private:
  void fill_inputs(Postcondition& postcondition);
  Status advance_all();
  Result<bool> advance(int rank);
  Status post(int rank);
  Result<bool> receive_all(int receiver);
  Status deliver(int receiver, size_t index, int sender, size_t sent);
  bool all_at_sync() const;
  std::string describe_wait() const;

  Status execute(int rank, const Step& step);
  Status touch(int rank, const Step& step);
  Status touch_one(int rank, const Operand& operand, const Step& step, bool write);
  Status check_overlap(const Step& step) const;
  Status check_group(int rank) const;
  Result<std::vector<Piece>> read(const Operand& operand, int64_t count) const;
  Result<std::vector<Piece>> reduce(const Step& step);
  Value evaluate(const std::vector<int>& tree, const std::vector<Value>& values);
  void write(const std::vector<Operand>& to, const std::vector<Piece>& pieces);
  Status check_outputs(Postcondition& postcondition) const;

  const Step* current(int rank) const {
    const auto& steps = list_.per_rank[rank];
    return next_[rank] < steps.size() ? &steps[next_[rank]] : nullptr;
  }

  const StepList& list_;
  const std::vector<int> parts_;
  const AddressMap addresses_;
  Symbols symbols_;
  std::vector<SymbolicBuffer> buffers_;
  std::vector<size_t> next_;               // step of each rank
  std::vector<std::vector<size_t>> open_;  // messages of its group that are still under way
  std::vector<Access> accesses_;
  int epoch_ = 0;  // syncs passed
  const int last_epoch_;
};

Status SymbolicRun::run() {
  Postcondition postcondition(list_, symbols_);
  fill_inputs(postcondition);
  for (;;) {
    HANJI_RETURN_IF_ERROR(advance_all());
    HANJI_RETURN_IF_ERROR(check_races(accesses_));
    accesses_.clear();
    if (!all_at_sync()) break;
    for (size_t& next : next_) ++next;
    ++epoch_;
  }
  for (int rank = 0; rank < list_.ranks; ++rank) {
    if (current(rank)) return refuse(describe_wait());
  }
  return check_outputs(postcondition);
}

void SymbolicRun::fill_inputs(Postcondition& postcondition) {
  for (int rank = 0; rank < list_.ranks; ++rank) {
    const int64_t elements = elements_of(list_, rank, Place::kInput);
    if (elements == 0) continue;
    for (int part = 0; part < parts_[rank]; ++part) {
      const Address at = addresses_.locate({rank, Place::kInput, part, 0});
      buffers_[at.space].write(at.begin,
                               {{{0, elements}, {postcondition.input(rank, part), 0, false}}});
    }
  }
}

// Until every rank stands at a sync, at its end, or waits for a message.
Status SymbolicRun::advance_all() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < list_.ranks; ++rank) {
      HANJI_ASSIGN_OR_RETURN(const bool rank_moved, advance(rank));
      moved = moved || rank_moved;
    }
  }
  return {};
}

Result<bool> SymbolicRun::advance(int rank) {
  bool moved = false;
  for (const Step* step = current(rank); step; step = current(rank)) {
    if (step->kind == StepKind::kSync) break;
    const size_t at = next_[rank];
    if (is_message(step->kind)) {
      const bool is_new = open_[rank].empty();
      if (is_new) HANJI_RETURN_IF_ERROR(post(rank).at(fmt::format("rank {}, step {}", rank, at)));
      HANJI_ASSIGN_OR_RETURN(const bool received, receive_all(rank));
      moved = moved || is_new || received;
      if (next_[rank] == at) break;
      continue;
    }
    const Status status = execute(rank, *step);
    if (!status.ok()) return status.at(fmt::format("rank {}, step {}", rank, at));
    ++next_[rank];
    moved = true;
  }
  return moved;
}

// Opens the group of messages that the rank has come to.
Status SymbolicRun::post(int rank) {
  const auto& steps = list_.per_rank[rank];
  const size_t end = end_of_group(steps, next_[rank]);
  for (size_t i = next_[rank]; i < end; ++i) {
    HANJI_RETURN_IF_ERROR(touch(rank, steps[i]));
    open_[rank].push_back(i);
  }
  return check_group(rank);
}

// A message moves when both sides have it open, as if sends blocked; those between two ranks in
// the order in which they stand.
Result<bool> SymbolicRun::receive_all(int receiver) {
  bool received = false;
  std::set<int> waits_for;
  for (const size_t index : std::vector<size_t>(open_[receiver])) {
    const Step& recv = list_.per_rank[receiver][index];
    if (recv.kind != StepKind::kRecv || waits_for.contains(recv.peer)) continue;
    const auto& steps = list_.per_rank[recv.peer];
    const auto& open = open_[recv.peer];
    const auto sent = std::find_if(open.begin(), open.end(), [&](size_t i) {
      return steps[i].kind == StepKind::kSend && steps[i].peer == receiver;
    });
    if (sent == open.end()) {
      waits_for.insert(recv.peer);
      continue;
    }
    HANJI_RETURN_IF_ERROR(deliver(receiver, index, recv.peer, *sent)
                              .at(fmt::format("rank {}, step {}", receiver, index)));
    received = true;
  }
  return received;
}

// Moves one message; a rank goes on when its group has none open.
Status SymbolicRun::deliver(int receiver, size_t index, int sender, size_t sent) {
  const Step& recv = list_.per_rank[receiver][index];
  const Step& send = list_.per_rank[sender][sent];
  if (send.count != recv.count) {
    return refuse(
        fmt::format("receives {} elements where rank {} sends {}", recv.count, sender, send.count));
  }
  auto pieces = read(send.from[0], send.count);
  if (!pieces.ok()) return pieces.status();
  write(recv.to, *pieces);
  for (const auto& [rank, done] : {std::pair(receiver, index), std::pair(sender, sent)}) {
    std::erase(open_[rank], done);
    if (open_[rank].empty()) next_[rank] = end_of_group(list_.per_rank[rank], next_[rank]);
  }
  return {};
}

bool SymbolicRun::all_at_sync() const {
  for (int rank = 0; rank < list_.ranks; ++rank) {
    const Step* step = current(rank);
    if (!step || step->kind != StepKind::kSync) return false;
  }
  return true;
}

std::string SymbolicRun::describe_wait() const {
  std::string text = "deadlock:";
  for (int rank = 0; rank < list_.ranks; ++rank) {
    const Step* step = current(rank);
    if (!open_[rank].empty()) step = &list_.per_rank[rank][open_[rank].front()];
    text += fmt::format(" rank {} {}{}", rank, step ? "waits in " : "has finished",
                        step ? name_of(step->kind) : "");
    if (step && step->peer >= 0) text += fmt::format(" with rank {}", step->peer);
    text += rank + 1 < list_.ranks ? "," : "";
    if (rank == 7 && list_.ranks > 9) return text + " ...";
  }
  return text;
}

Status SymbolicRun::execute(int rank, const Step& step) {
  HANJI_RETURN_IF_ERROR(touch(rank, step));
  HANJI_RETURN_IF_ERROR(check_overlap(step));
  auto pieces = step.kind == StepKind::kCopy ? read(step.from[0], step.count) : reduce(step);
  if (!pieces.ok()) return pieces.status();
  write(step.to, *pieces);
  return {};
}

Status SymbolicRun::touch(int rank, const Step& step) {
  for (const Operand& operand : step.from) {
    HANJI_RETURN_IF_ERROR(touch_one(rank, operand, step, false));
  }
  for (const Operand& operand : step.to) {
    HANJI_RETURN_IF_ERROR(touch_one(rank, operand, step, true));
  }
  return {};
}

Status SymbolicRun::touch_one(int rank, const Operand& operand, const Step& step, bool write) {
  const Address at = addresses_.locate(operand);
  accesses_.push_back({at, at.begin + step.count, rank, write});
  if (operand.rank == rank) return {};
  const bool early = epoch_ == 0;
  const bool late = epoch_ == last_epoch_ && (write || is_tensor(operand.place));
  if (!early && !late) return {};
  return refuse(fmt::format("touches rank {}'s {} {}", operand.rank, name_of(operand.place),
                            early ? "before the first sync, when it may still be in use"
                                  : "after the last sync, when its owner may have gone on"));
}

// One range may be read and written in place; any other overlap depends on the order inside.
Status SymbolicRun::check_overlap(const Step& step) const {
  std::set<std::pair<int, int64_t>> from, to;
  const auto key = [&](const Operand& operand) {
    const Address at = addresses_.locate(operand);
    return std::pair(at.space, at.begin);
  };
  // The nearest begin within count elements of `at`, other than `at` itself.
  const auto overlaps = [&](const auto& set, const std::pair<int, int64_t>& at) {
    auto near = set.lower_bound({at.first, at.second - step.count + 1});
    if (near != set.end() && *near == at) ++near;
    return near != set.end() && *near < std::pair(at.first, at.second + step.count);
  };
  for (const Operand& operand : step.from) from.insert(key(operand));
  for (const Operand& operand : step.to) {
    const bool is_new = to.insert(key(operand)).second;
    if (!is_new || overlaps(from, key(operand)) || overlaps(to, key(operand))) {
      return refuse(fmt::format("writes rank {}'s {} from {} over another operand of the step",
                                operand.rank, name_of(operand.place), operand.begin));
    }
  }
  return {};
}

// The messages of a group are under way at once, so what one receives no other may touch.
Status SymbolicRun::check_group(int rank) const {
  const auto& steps = list_.per_rank[rank];
  struct Span {
    Address at;
    int64_t end;
    bool write;
  };
  std::vector<Span> spans;
  for (const size_t i : open_[rank]) {
    const bool write = steps[i].kind == StepKind::kRecv;
    const Address at = addresses_.locate(write ? steps[i].to[0] : steps[i].from[0]);
    spans.push_back({at, at.begin + steps[i].count, write});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.at.space, a.at.begin) < std::pair(b.at.space, b.at.begin);
  });
  int64_t written = 0, touched = 0;  // ends, in the space at hand
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i == 0 || spans[i].at.space != spans[i - 1].at.space) written = touched = 0;
    if (spans[i].at.begin < (spans[i].write ? touched : written)) {
      return refuse("joins a recv to a message that touches the same elements");
    }
    touched = std::max(touched, spans[i].end);
    if (spans[i].write) written = std::max(written, spans[i].end);
  }
  return {};
}

Result<std::vector<Piece>> SymbolicRun::read(const Operand& operand, int64_t count) const {
  const Address at = addresses_.locate(operand);
  std::vector<Piece> pieces = buffers_[at.space].read(at.begin, count);
  for (const Piece& piece : pieces) {
    if (piece.value.expr < 0) {
      return refuse(fmt::format("reads element {} of rank {}'s {}, which nobody has written",
                                operand.begin + piece.range.begin, operand.rank,
                                name_of(operand.place)));
    }
  }
  return pieces;
}

Result<std::vector<Piece>> SymbolicRun::reduce(const Step& step) {
  std::vector<std::vector<Piece>> sources;
  std::set<int64_t> borders;
  for (const Operand& operand : step.from) {
    HANJI_ASSIGN_OR_RETURN(std::vector<Piece> pieces, read(operand, step.count));
    for (const Piece& piece : pieces) {
      if (piece.value.reduced) return refuse("reduces (rounds, averages) an element twice");
      borders.insert(piece.range.end);
    }
    sources.push_back(std::move(pieces));
  }
  std::vector<Piece> result;
  std::vector<size_t> at(sources.size(), 0);
  std::vector<Value> values(sources.size());
  int64_t begin = 0;
  for (const int64_t end : borders) {
    for (size_t i = 0; i < sources.size(); ++i) {
      values[i] = sources[i][at[i]].value;
      if (sources[i][at[i]].range.end == end) ++at[i];
    }
    result.push_back({{begin, end}, evaluate(step.tree, values)});
    result.back().value.reduced = step.kind == StepKind::kReduce;
    begin = end;
  }
  return result;
}

Value SymbolicRun::evaluate(const std::vector<int>& tree, const std::vector<Value>& values) {
  std::vector<Value> stack;
  for (const int value : tree) {
    if (value >= 0) {
      stack.push_back(values[value]);
      continue;
    }
    const Value right = stack.back();
    stack.pop_back();
    stack.back() = symbols_.combine(stack.back(), right);
  }
  return stack[0];
}

void SymbolicRun::write(const std::vector<Operand>& to, const std::vector<Piece>& pieces) {
  for (const Operand& operand : to) {
    const Address at = addresses_.locate(operand);
    buffers_[at.space].write(at.begin, pieces);
  }
}

Status SymbolicRun::check_outputs(Postcondition& postcondition) const {
  for (int rank = 0; rank < list_.ranks; ++rank) {
    const int64_t elements = elements_of(list_, rank, Place::kOutput);
    if (elements == 0) continue;
    const Operand output{rank, Place::kOutput, 0, 0};
    auto pieces = read(output, elements);
    if (!pieces.ok()) return pieces.status().at("at the end");
    for (const Piece& piece : *pieces) HANJI_RETURN_IF_ERROR(postcondition.check(rank, piece));
  }
  return {};
}

// Along another order of ranks (reorder.h) the root may stand anywhere in its tree.
bool fits_a_reordered_tree(const StepList& list, const Totals& found) {
  if (list.routine != Routine::kBroadcast || found.syncs > 0) return false;
  StepList turned = list;
  for (turned.root = 0; turned.root < list.ranks; ++turned.root) {
    if (formula(turned) == found) return true;
  }
  return false;
}

// meet_first() puts one more sync before everything else.
bool fits_behind_a_sync(const StepList& list, Totals due, const Totals& found) {
  const auto meets = [](const std::vector<Step>& steps) {
    return !steps.empty() && steps.front().kind == StepKind::kSync;
  };
  due.syncs += 1;
  due.steps += list.ranks;
  return std::ranges::all_of(list.per_rank, meets) && due == found;
}

Status check_formula(const StepList& list) {
  const std::optional<Totals> due = formula(list);
  const Totals found = count_totals(list);
  if (!due || *due == found || fits_a_reordered_tree(list, found)) return {};
  if (fits_behind_a_sync(list, *due, found)) return {};
  return refuse(fmt::format(
      "{} {} over {} ranks has {} syncs, {} steps, {} elements read, {} written, {} on the wire; "
      "the formula says {}, {}, {}, {}, {}",
      name_of(list.routine), list.algorithm, list.ranks, found.syncs, found.steps, found.read,
      found.written, found.wire, due->syncs, due->steps, due->read, due->written, due->wire));
}

}  // namespace

Status check(const StepList& list) {
  HANJI_RETURN_IF_ERROR(check_bounds(list));
  for (const Aliasing aliasing : {Aliasing::kSeparate, Aliasing::kInPlace}) {
    if (aliasing == Aliasing::kInPlace && !list.in_place) continue;
    const Status status = SymbolicRun(list, aliasing).run();
    if (!status.ok()) {
      return aliasing == Aliasing::kInPlace ? status.at("with output and input in one place")
                                            : status;
    }
  }
  return check_formula(list);
}

}  // namespace hanji::schedule
