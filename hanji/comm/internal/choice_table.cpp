#include "hanji/comm/internal/choice_table.h"

#include <utility>

#include "hanji/base/random.h"

namespace hanji::comm {

ChoiceTable::Key::Key(const Request& request)
    : routine(request.routine),
      op(request.op),
      dtype(request.dtype),
      in_place(request.in_place),
      root(request.root),
      count(request.count),
      counts(request.counts) {}

bool ChoiceTable::Key::is_of(const Request& request) const {
  return routine == request.routine && op == request.op && dtype == request.dtype &&
         in_place == request.in_place && root == request.root && count == request.count &&
         counts == request.counts;
}

size_t ChoiceTable::Hash::operator()(const Key& key) const {
  const auto kind = static_cast<uint64_t>(key.routine) | static_cast<uint64_t>(key.op) << 8 |
                    static_cast<uint64_t>(key.dtype) << 16 | uint64_t{key.in_place} << 24;
  uint64_t hash = base::mix(kind, static_cast<uint64_t>(key.root));
  hash = base::mix(hash, static_cast<uint64_t>(key.count));
  for (const int64_t count : key.counts) hash = base::mix(hash, static_cast<uint64_t>(count));
  return hash;
}

const ChoiceTable::Entry* ChoiceTable::find(const Request& request) {
  if (last_ != nullptr && last_->first.is_of(request)) return &last_->second;
  Key key(request);
  if (const auto found = young_.find(key); found != young_.end()) {
    last_ = &*found;
    return &last_->second;
  }
  const auto found = old_.find(key);
  if (found == old_.end()) return nullptr;
  return &keep(std::move(key), found->second);
}

const ChoiceTable::Entry& ChoiceTable::insert(const Request& request, Choice choice) {
  return keep(Key(request), std::make_shared<const Choice>(std::move(choice)));
}

const ChoiceTable::Entry& ChoiceTable::keep(Key&& key, Entry entry) {
  if (young_.size() >= kKept) old_ = std::exchange(young_, {});
  last_ = &*young_.insert_or_assign(std::move(key), std::move(entry)).first;
  return last_->second;
}

}  // namespace hanji::comm
