#include "hanji/cost/choose_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>

#include "hanji/cost/compare.h"
#include "hanji/schedule/catalogue.h"
#include "hanji/schedule/reorder.h"

namespace hanji::cost {
namespace {

using schedule::Algorithm;
using schedule::StepList;

constexpr int64_t kNarrowBytes = 2;  // elements of which a partial sum is rounded visibly

bool keeps_promise(const StepList& list, const MessageQuery& query) {
  if (!query.needs_order) return true;
  const bool is_narrow = query.query.element_bytes <= kNarrowBytes;
  return list.keeps_order && !(is_narrow && makes_partial_sums(list));
}

int segments_for(const Algorithm& algorithm, const MessageQuery& query) {
  if (!algorithm.is_pipelined) return 1;
  Question question;
  question.routine = query.query.routine;
  question.bytes = std::max<int64_t>(1, query.query.count * query.query.element_bytes);
  question.ranks = query.query.ranks;
  question.network = query.network;
  return best_segments(algorithm, question);
}

Result<StepList> make_list(const Algorithm& algorithm, const MessageQuery& query) {
  const Query& call = query.query;
  const schedule::ListShape shape{call.root, segments_for(algorithm, query),
                                  std::max(1, query.ranks_per_host)};
  try {
    StepList list = make_in_order(algorithm, call.ranks, call.count, shape, query.order);
    if (query.order.empty() || keeps_promise(list, query)) return list;
    return algorithm.make(call.ranks, call.count, shape);
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
}

Result<MessageChoice> price(const Algorithm& algorithm, const MessageQuery& query) {
  const Query& call = query.query;
  MessageChoice choice;
  HANJI_ASSIGN_OR_RETURN(choice.list, make_list(algorithm, query));
  if (!query.named.empty()) return choice;  // whatever it costs
  HANJI_ASSIGN_OR_RETURN(
      const Timeline timeline,
      simulate(choice.list, static_cast<size_t>(call.element_bytes), query.network));
  choice.seconds = timeline.seconds();
  return choice;
}

bool is_candidate(const Algorithm& algorithm, const MessageQuery& query) {
  if (!query.named.empty()) return algorithm.name == query.named;
  return !algorithm.is_hierarchical || query.ranks_per_host > 0;
}

// The class of a size, and its smallest size: a quarter of the step from a power of two to the next.
int64_t class_of(int64_t bytes) {
  if (bytes < 8) return bytes;
  const int64_t quarter = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 4;
  return bytes / quarter * quarter;
}

}  // namespace

// Decides alike on every rank: nothing but the call and the network goes in.
class MessageTable {
 public:
  Result<StepList> select(const MessageQuery& query) {
    const Query& call = query.query;
    const int64_t smallest = class_of(call.count * call.element_bytes);
    const Key key{call.routine,
                  call.ranks,
                  call.root,
                  smallest,
                  call.element_bytes,
                  query.needs_order,
                  query.ranks_per_host,
                  query.network.latency_seconds,
                  query.network.bytes_per_second,
                  query.network.reduce_bytes_per_second};
    const std::lock_guard lock(mutex_);
    auto found = algorithms_.find(key);
    if (found == algorithms_.end()) {
      MessageQuery typical = query;
      typical.query.count = smallest / call.element_bytes;
      HANJI_ASSIGN_OR_RETURN(const auto choices, choose_messages(typical));
      found = algorithms_.emplace(key, choices.front().list.algorithm).first;
    }
    for (const Algorithm& algorithm : schedule::message_algorithms(call.routine)) {
      if (algorithm.name == found->second) return make_list(algorithm, query);
    }
    return base::internal("no algorithm " + found->second + " though it was chosen");
  }

 private:
  using Key =
      std::tuple<schedule::Routine, int, int, int64_t, int64_t, bool, int, double, double, double>;

  std::mutex mutex_;
  std::map<Key, std::string> algorithms_;
};

std::shared_ptr<MessageTable> make_message_table() { return std::make_shared<MessageTable>(); }

Result<StepList> Chooser::select_messages(const MessageQuery& query) {
  if (query.named.empty()) return messages_->select(query);
  HANJI_ASSIGN_OR_RETURN(auto choices, choose_messages(query));
  return std::move(choices.front().list);
}

Result<std::vector<MessageChoice>> choose_messages(const MessageQuery& query) {
  const Query& call = query.query;
  if (!query.named.empty()) {
    HANJI_RETURN_IF_ERROR(check_named({.routine = call.routine,
                                       .algorithm = std::string(query.named),
                                       .medium = Medium::kMessages,
                                       .ranks = call.ranks,
                                       .needs_order = query.needs_order}));
  }
  std::vector<MessageChoice> choices;
  for (const Algorithm& algorithm : schedule::message_algorithms(call.routine)) {
    if (!is_candidate(algorithm, query)) continue;
    HANJI_ASSIGN_OR_RETURN(MessageChoice choice, price(algorithm, query));
    if (keeps_promise(choice.list, query)) choices.push_back(std::move(choice));
  }
  if (choices.empty()) {
    return base::unsupported(fmt::format(
        "no algorithm of messages gives a {} of {}-byte elements over {} ranks the order of one "
        "process; set train.bits = \"fast\"",
        name_of(call.routine), call.element_bytes, call.ranks));
  }
  std::ranges::stable_sort(choices, {}, &MessageChoice::seconds);
  return choices;
}

}  // namespace hanji::cost
