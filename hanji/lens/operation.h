#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
struct FunctionSchema;
}  // namespace c10

namespace hanji::lens {

/// Calls `see(tensor)` for every defined tensor of a list of arguments or results, those within
/// lists too.
template <class See>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, See&& see) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) see(tensor);
    } else if (value.isList()) {
      for_each_tensor(value.toListRef(), see);
    }
  }
}

/// One call that went through libtorch's dispatcher, as an observer sees it.
///
/// Order   arguments() before the call, results() after it; each is empty at the other time.
/// Thread  valid within the observer's callback only; keep copies of what must outlive it.
class Operation {
 public:
  Operation(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& stack);

  /// With its namespace, without its overload: "aten::addmm".
  const std::string& name() const;
  const c10::FunctionSchema& schema() const;
  /// Whether the results are other shapes of the arguments' memory, and nothing is computed.
  bool is_view() const;

  c10::ArrayRef<c10::IValue> arguments() const;
  c10::ArrayRef<c10::IValue> results() const;

  /// Every defined tensor among the arguments: before the call.
  template <class See>
  void for_each_input(See&& see) const {
    for_each_tensor(arguments(), see);
  }
  /// Every defined tensor among the results: after the call.
  template <class See>
  void for_each_output(See&& see) const {
    for_each_tensor(results(), see);
  }

  /// The call has been made; for the one who makes it.
  void finish() { done_ = true; }

 private:
  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue>& stack_;
  bool done_ = false;
};

}  // namespace hanji::lens
