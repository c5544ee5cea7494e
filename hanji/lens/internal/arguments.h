#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace hanji::lens {

/// The position of the argument with that name, or -1.
int position_of(const c10::OperatorHandle& handle, std::string_view argument);

/// Sets an argument among `arguments` where the operation has one of that name.
void set_argument(const c10::OperatorHandle& handle, std::vector<c10::IValue>& arguments,
                  std::string_view name, const c10::IValue& value);

/// Makes the call; `stack` then holds its results. Below the observers: they do not see it.
void call_below(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack);

}  // namespace hanji::lens
