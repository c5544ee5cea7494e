#include "hanji/cost/choose_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/cost/compare.h"
#include "hanji/schedule/catalogue.h"

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

Result<MessageChoice> price(const Algorithm& algorithm, const MessageQuery& query) {
  const Query& call = query.query;
  MessageChoice choice;
  try {
    choice.list = algorithm.make(
        call.ranks, call.count,
        {call.root, segments_for(algorithm, query), std::max(1, query.ranks_per_host)});
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
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

}  // namespace

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
