#include "hanji/lens/internal/arguments.h"

#include "hanji/lens/observer.h"

namespace hanji::lens {

int position_of(const c10::OperatorHandle& handle, std::string_view argument) {
  const auto& arguments = handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == argument) return static_cast<int>(i);
  }
  return -1;
}

void set_argument(const c10::OperatorHandle& handle, std::vector<c10::IValue>& arguments,
                  std::string_view name, const c10::IValue& value) {
  const int position = position_of(handle, name);
  if (position >= 0) arguments[static_cast<size_t>(position)] = value;
}

void call_below(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack) {
  const Pause pause;
  handle.callBoxed(stack);
}

}  // namespace hanji::lens
