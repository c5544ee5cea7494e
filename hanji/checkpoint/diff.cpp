#include "hanji/checkpoint/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace hanji::checkpoint {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double e4m3fn_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  double value = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x80) != 0 ? -value : value;
}

double value_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kFloat64: return load<double>(at);
    case DType::kFloat32: return load<float>(at);
    case DType::kBFloat16: return std::bit_cast<float>(uint32_t{load<uint16_t>(at)} << 16);
    case DType::kFloat16: return half_value(load<uint16_t>(at));
    case DType::kInt32: return load<int32_t>(at);
    case DType::kInt64: return static_cast<double>(load<int64_t>(at));
    case DType::kUInt8:
    case DType::kBool: return load<uint8_t>(at);
    case DType::kInt8: return load<int8_t>(at);
    case DType::kFloat8E4M3FN: return e4m3fn_value(load<uint8_t>(at));
    case DType::kFloat8E5M2: return half_value(static_cast<uint16_t>(load<uint8_t>(at) << 8));
  }
  return 0;
}

/// Where a value stands among all values of its type, in order; both zeros stand at 0.
template <class Bits>
double place(const std::byte* at) {
  constexpr int kSignBit = sizeof(Bits) * 8 - 1;
  const auto bits = load<Bits>(at);
  const auto magnitude = static_cast<double>(bits & ((Bits{1} << kSignBit) - 1));
  return bits >> kSignBit != 0 ? -magnitude : magnitude;
}

double ulps(DType dtype, const std::byte* left, const std::byte* right) {
  switch (dtype) {
    case DType::kFloat64: return std::abs(place<uint64_t>(left) - place<uint64_t>(right));
    case DType::kFloat32: return std::abs(place<uint32_t>(left) - place<uint32_t>(right));
    case DType::kBFloat16:
    case DType::kFloat16: return std::abs(place<uint16_t>(left) - place<uint16_t>(right));
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return std::abs(place<uint8_t>(left) - place<uint8_t>(right));
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool: return 0;
  }
  return 0;
}

/// The larger of the two, or NaN once there was one.
void raise(double& largest, double value) {
  if (value > largest || std::isnan(value)) largest = std::isnan(largest) ? largest : value;
}

/// Adds what differs in a run of two tensors that begins at their element `first`.
void compare_run(DType dtype, int64_t first, std::span<const std::byte> a,
                 std::span<const std::byte> b, Difference& difference) {
  if (std::equal(a.begin(), a.end(), b.begin())) return;
  const size_t width = base::size_of(dtype);
  for (size_t at = 0; at < a.size(); at += width) {
    const std::byte* left = a.data() + at;
    const std::byte* right = b.data() + at;
    if (std::memcmp(left, right, width) == 0) continue;
    if (difference.num_elements++ == 0) {
      difference.first_element = first + static_cast<int64_t>(at / width);
    }
    const double distance = std::abs(value_at(dtype, left) - value_at(dtype, right));
    raise(difference.largest, distance);
    raise(difference.largest_ulps, std::isnan(distance) ? distance : ulps(dtype, left, right));
  }
}

/// Tensors of one form, whose runs may begin and end elsewhere.
Difference compare_values(const SavedTensor& a, const SavedTensor& b) {
  const auto width = static_cast<int64_t>(base::size_of(a.dtype));
  Difference difference{.tensor = a.name};
  for_each_run(a, {0, a.num_elements()}, [&](int64_t begin, std::span<const std::byte> left) {
    const layout::Range run{begin, begin + std::ssize(left) / width};
    for_each_run(b, run, [&](int64_t first, std::span<const std::byte> right) {
      compare_run(a.dtype, begin + first,
                  left.subspan(static_cast<size_t>(first * width), right.size()), right,
                  difference);
    });
  });
  return difference;
}

const ForeignTensor* find_foreign(const SafetensorsFile& file, std::string_view name) {
  const auto found = std::ranges::find(file.foreign(), name, &ForeignTensor::name);
  return found == file.foreign().end() ? nullptr : &*found;
}

void add(std::map<std::string, Difference>& found, const std::string& tensor, DifferenceKind kind) {
  found[tensor] = {.tensor = tensor, .kind = kind};
}

}  // namespace

std::string_view name_of(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::kOnlyInFirst: return "only in the first";
    case DifferenceKind::kOnlyInSecond: return "only in the second";
    case DifferenceKind::kForm: return "type or shape";
    case DifferenceKind::kValues: return "values";
    case DifferenceKind::kBytes: return "bytes";
  }
  return "unknown";
}

std::vector<Difference> diff(const SafetensorsFile& first, const SafetensorsFile& second) {
  std::map<std::string, Difference> found;
  for (Difference& one : diff(first.tensors(), second.tensors())) found[one.tensor] = one;
  for (const ForeignTensor& tensor : first.foreign()) {
    const ForeignTensor* other = find_foreign(second, tensor.name);
    if (!other) {
      const bool is_there = second.find(tensor.name) != nullptr;
      add(found, tensor.name, is_there ? DifferenceKind::kForm : DifferenceKind::kOnlyInFirst);
    } else if (tensor.type != other->type || tensor.shape != other->shape) {
      add(found, tensor.name, DifferenceKind::kForm);
    } else if (!std::ranges::equal(tensor.bytes, other->bytes)) {
      add(found, tensor.name, DifferenceKind::kBytes);
    }
  }
  for (const ForeignTensor& tensor : second.foreign()) {
    if (find_foreign(first, tensor.name)) continue;
    const bool is_there = first.find(tensor.name) != nullptr;
    add(found, tensor.name, is_there ? DifferenceKind::kForm : DifferenceKind::kOnlyInSecond);
  }
  std::vector<Difference> sorted;
  for (auto& [name, one] : found) sorted.push_back(std::move(one));
  return sorted;
}

std::vector<Difference> diff(std::span<const NamedTensor> first,
                             std::span<const NamedTensor> second) {
  return diff(in_one_run(first), in_one_run(second));
}

std::vector<Difference> diff(std::span<const SavedTensor> first,
                             std::span<const SavedTensor> second) {
  std::map<std::string_view, std::pair<const SavedTensor*, const SavedTensor*>> pairs;
  for (const SavedTensor& tensor : first) pairs[tensor.name].first = &tensor;
  for (const SavedTensor& tensor : second) pairs[tensor.name].second = &tensor;
  std::vector<Difference> found;
  for (const auto& [name, pair] : pairs) {
    const auto& [a, b] = pair;
    const auto add = [&found, &name = name](DifferenceKind kind) {
      found.push_back({.tensor = std::string(name), .kind = kind});
    };
    if (b == nullptr) {
      add(DifferenceKind::kOnlyInFirst);
    } else if (a == nullptr) {
      add(DifferenceKind::kOnlyInSecond);
    } else if (a->dtype != b->dtype || a->shape != b->shape) {
      add(DifferenceKind::kForm);
    } else if (Difference values = compare_values(*a, *b); values.num_elements > 0) {
      found.push_back(std::move(values));
    }
  }
  return found;
}

}  // namespace hanji::checkpoint
