#include "hanji/lens/operation.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace hanji::lens {
namespace {

/// The topmost values of the dispatcher's stack.
c10::ArrayRef<c10::IValue> top(const std::vector<c10::IValue>& stack, size_t count) {
  return c10::ArrayRef<c10::IValue>(stack.data() + (stack.size() - count), count);
}

}  // namespace

Operation::Operation(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& stack)
    : schema_(handle.schema()), stack_(stack) {}

const std::string& Operation::name() const { return schema_.name(); }

const c10::FunctionSchema& Operation::schema() const { return schema_; }

bool Operation::is_view() const {
  if (schema_.returns().empty()) return false;
  for (const auto& result : schema_.returns()) {
    if (!result.alias_info() || result.alias_info()->isWrite()) return false;
  }
  return true;
}

c10::ArrayRef<c10::IValue> Operation::arguments() const {
  if (done_) return {};
  return top(stack_, schema_.arguments().size());
}

c10::ArrayRef<c10::IValue> Operation::results() const {
  if (!done_) return {};
  return top(stack_, schema_.returns().size());
}

}  // namespace hanji::lens
