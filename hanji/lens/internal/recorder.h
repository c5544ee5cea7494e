#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "hanji/lens/internal/interceptor.h"
#include "hanji/lens/internal/tape.h"

namespace hanji::lens {

/// Makes every tensor without memory and writes down what is done to it.
///
/// A small `empty` gets memory at first, for torch::tensor({..}) and its like write through a
/// pointer; when the first operation meets it, its bytes become the storage's literal and the
/// memory goes. What a construction reads (item()) is computed for it.
class Recorder : public Interceptor {
 public:
  explicit Recorder(uint64_t seed) : tape_(std::make_shared<Tape>()) { tape_->seed = seed; }

  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
            std::vector<c10::IValue>& stack) override;

  /// Where a tensor of the module lies on the tape. It has no memory afterwards.
  Slot place(const at::Tensor& tensor);

  std::shared_ptr<const Tape> tape() const { return tape_; }

 private:
  struct Known {
    int number;
    c10::Storage storage;  // keeps the address from being used again
    bool has_memory;
  };

  void make(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack);
  void record(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack);
  void call_without_memory(const Entry& entry, std::vector<c10::IValue>& stack);
  void give_elements(c10::IValue& value);
  void read(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack);
  void note_results(Entry entry, const std::vector<c10::IValue>& stack);
  Value value_of(c10::IValue& value, Entry& entry, bool is_written);
  Slot argument(at::Tensor& tensor, Entry& entry, bool is_written);

  Known* find(const at::Tensor& tensor);
  int add(const at::Tensor& tensor, bool has_memory);
  void take_memory(const at::Tensor& tensor);
  at::Tensor stand_in(const at::Tensor& real);
  Slot slot_of(const at::Tensor& tensor);

  std::shared_ptr<Tape> tape_;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  uint64_t draws_ = 0;
};

}  // namespace hanji::lens
