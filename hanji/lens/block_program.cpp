#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/random_values.h"
#include "hanji/lens/internal/replay.h"

namespace hanji::lens {
namespace {

/// Operations that compute each element of their result from the same element of their arguments.
bool is_elementwise(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
      "abs",        "add",      "addcdiv",     "addcmul",     "arctan",    "atan",
      "ceil",       "clamp",    "clip",        "clamp_min",   "clamp_max", "clone",
      "contiguous", "copy",     "cos",         "detach_copy", "div",       "divide",
      "erf",        "erfc",     "erfinv",      "exp",         "exp2",      "expm1",
      "fill",       "floor",    "frac",        "lerp",        "log",       "log1p",
      "log2",       "maximum",  "minimum",     "mul",         "multiply",  "nan_to_num",
      "neg",        "negative", "pow",         "reciprocal",  "relu",      "round",
      "rsqrt",      "rsub",     "sigmoid",     "sign",        "sin",       "sinh",
      "softplus",   "sqrt",     "square",      "sub",         "subtract",  "tan",
      "tanh",       "to",       "true_divide", "trunc",       "where",     "masked_fill",
      "_to_copy",   "zero",     "ge",          "gt",          "le",        "lt",
      "eq",         "ne",       "logical_not", "remainder"};
  if (name.substr(0, 6) != "aten::") return false;
  name.remove_prefix(6);
  if (name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return names.count(name) != 0;
}

/// The value that a factory fills with; none for what is no such factory.
std::optional<double> constant_of(const Entry& entry) {
  static const std::unordered_map<std::string_view, double> fills = {
      {"aten::empty", 0},      {"aten::zeros", 0},         {"aten::ones", 1},
      {"aten::new_empty", 0},  {"aten::new_zeros", 0},     {"aten::new_ones", 1},
      {"aten::empty_like", 0}, {"aten::empty_strided", 0}, {"aten::zeros_like", 0},
      {"aten::ones_like", 1}};
  if (const auto place = fills.find(entry.handle.schema().name()); place != fills.end()) {
    return place->second;
  }
  const std::string& name = entry.handle.schema().name();
  if (name != "aten::full" && name != "aten::full_like" && name != "aten::new_full") return {};
  const int position = position_of(entry.handle, "fill_value");
  const auto* value = std::get_if<c10::IValue>(&entry.arguments[static_cast<size_t>(position)]);
  if (!value || !value->isScalar() || value->toScalar().isComplex()) return {};
  return value->toScalar().toDouble();
}

using Blocks = std::unordered_map<int, at::Tensor>;

at::Tensor literal_block(const Storage& storage, at::ScalarType dtype, layout::Range range) {
  if (!storage.literal.defined()) return at::zeros({range.size()}, dtype);
  return storage.literal.view(dtype).slice(0, range.begin, range.end).clone();
}

/// One elementwise operation on the blocks of its arguments.
void run_block(const Tape& tape, const Entry& entry, layout::Range range, Blocks& blocks) {
  std::vector<c10::IValue> stack;
  for (const Value& value : entry.arguments) {
    if (const auto* slot = std::get_if<Slot>(&value)) {
      auto& block = blocks[slot->storage];
      if (!block.defined()) {
        block = literal_block(tape.storage(slot->storage), slot->dtype, range);
      }
      stack.emplace_back(block);
    } else {
      stack.push_back(std::get<c10::IValue>(value));
    }
  }
  set_argument(entry.handle, stack, "device", c10::Device(c10::kCPU));
  set_argument(entry.handle, stack, "memory_format", c10::IValue());
  call_below(entry.handle, stack);
  for (const auto& made : entry.results) {
    if (made) blocks[made->storage] = stack.back().toTensor();
  }
}

}  // namespace

BlockProgram::BlockProgram(const Tape& tape, int storage)
    : tape_(tape),
      storage_(storage),
      entries_(tape.needed(storage, static_cast<int>(tape.entries.size()))) {
  ok_ = check();
}

/// All tensors have as many elements, lie in memory in their order, and keep one type.
bool BlockProgram::check_slot(const Slot& slot) {
  const Storage& storage = tape_.storage(slot.storage);
  if (!storage.refused.empty() || c10::isComplexType(slot.dtype)) return false;
  if (!slot.is_whole(storage.bytes)) return false;
  if (numel_ < 0) numel_ = slot.numel();
  for (const auto& [number, dtype] : dtypes_) {
    if (number == slot.storage && dtype != slot.dtype) return false;
  }
  dtypes_.emplace_back(slot.storage, slot.dtype);
  if (slot.storage == storage_) dtype_ = slot.dtype;
  return slot.numel() == numel_ && numel_ > 1;
}

bool BlockProgram::check() {
  for (const int number : entries_) {
    const Entry& entry = tape_.entries[static_cast<size_t>(number)];
    const auto distribution = entry.draw ? distribution_of(entry) : std::nullopt;
    if (entry.draw ? !distribution : !constant_of(entry) && !is_elementwise(entry.name())) {
      return false;
    }
    if (entry.writes.size() != 1) return false;
    for (const Value& value : entry.arguments) {
      if (std::holds_alternative<SlotList>(value)) return false;
      if (const auto* slot = std::get_if<Slot>(&value); slot && !check_slot(*slot)) return false;
    }
    for (const auto& made : entry.results) {
      if (made && !check_slot(*made)) return false;
      if (made && entry.draw && !c10::isFloatingType(made->dtype)) return false;
    }
  }
  return !entries_.empty() && numel_ > 1 &&
         std::any_of(dtypes_.begin(), dtypes_.end(),
                     [&](const auto& known) { return known.first == storage_; });
}

at::Tensor BlockProgram::block(layout::Range range) const {
  Blocks blocks;
  for (const int number : entries_) {
    const Entry& entry = tape_.entries[static_cast<size_t>(number)];
    const int written = entry.writes[0];
    at::ScalarType dtype = at::kFloat;
    for (const auto& [storage, known] : dtypes_) {
      if (storage == written) dtype = known;
    }
    if (entry.draw) {
      blocks[written] =
          random_values(*distribution_of(entry), draw_key(tape_, entry), range, dtype);
    } else if (const auto constant = constant_of(entry)) {
      const Storage& storage = tape_.storage(written);
      blocks[written] = storage.literal.defined() ? literal_block(storage, dtype, range)
                                                  : at::full({range.size()}, *constant, dtype);
    } else {
      run_block(tape_, entry, range, blocks);
    }
  }
  return blocks[storage_];
}

void BlockProgram::write(layout::Range range, const at::Tensor& out) const {
  const int64_t first = range.begin / kBlock;
  const int64_t last = (range.end + kBlock - 1) / kBlock;
  at::parallel_for(first, last, 1, [&](int64_t from, int64_t until) {
    const c10::NoGradGuard no_grad;
    for (int64_t b = from; b < until; ++b) {
      const layout::Range all{b * kBlock, std::min((b + 1) * kBlock, numel_)};
      const layout::Range own{std::max(all.begin, range.begin), std::min(all.end, range.end)};
      out.slice(0, own.begin - range.begin, own.end - range.begin)
          .copy_(block(all).slice(0, own.begin - all.begin, own.end - all.begin));
    }
  });
}

}  // namespace hanji::lens
