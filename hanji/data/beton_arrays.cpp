#include "hanji/data/beton_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "hanji/base/file.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/npy_header.h"

namespace hanji::data {
namespace internal {

struct OpenArray {
  base::MappedFile file;
  NpyHeader header;
  BetonField field;
  uint64_t element_bytes = 0;

  std::span<const std::byte> element(uint64_t i) const {
    return file.bytes().subspan(header.begin + i * element_bytes, element_bytes);
  }
};

}  // namespace internal

namespace {

using internal::NpyHeader;
using internal::OpenArray;

char kind_of(const NpyHeader& header) { return header.dtype[1]; }

/// Arrays of numbers, one per sample.
BetonType type_of_array(const NpyHeader& header) {
  const bool is_vector = header.shape.size() == 1;
  const char kind = kind_of(header);
  if (is_vector && (kind == 'i' || kind == 'u' || kind == 'b')) return BetonType::kInt;
  if (is_vector && kind == 'f' && header.item_bytes >= 4) return BetonType::kFloat;
  const auto& shape = header.shape;
  const bool is_image = kind == 'u' && header.item_bytes == 1 && shape.size() == 4 &&
                        shape[3] == 3 && shape[1] <= UINT16_MAX && shape[2] <= UINT16_MAX;
  return is_image ? BetonType::kRgbImage : BetonType::kNdArray;
}

Result<OpenArray> open_array(const NamedArray& array) {
  HANJI_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::open(array.path));
  const auto header = internal::parse_npy(file.bytes());
  if (!header.ok()) return header.status().at(array.path.native());
  OpenArray open{.file = std::move(file), .header = *header, .field = {.name = array.name}};
  const bool is_empty = std::ranges::count(open.header.shape, 0) > 0;
  if (open.header.shape.empty() || is_empty) {
    return base::invalid_argument(array.path.native() +
                                  ": an array of no elements; its first dimension are the samples");
  }
  open.field.type = type_of_array(open.header);
  open.element_bytes = open.header.item_bytes;
  for (const uint64_t size : std::span(open.header.shape).subspan(1)) open.element_bytes *= size;
  if (open.field.type == BetonType::kNdArray) {
    open.field.dtype = open.header.dtype;
    open.field.shape.assign(open.header.shape.begin() + 1, open.header.shape.end());
    if (open.field.shape.empty()) open.field.shape = {1};
  }
  return open;
}

/// An element of 1 to 8 bytes in the machine's order.
uint64_t word_of(const OpenArray& array, uint64_t i) {
  const auto element = array.element(i);
  const bool is_big = array.header.dtype[0] == '>';
  uint64_t word = 0;
  for (size_t b = 0; b < element.size(); ++b) {
    const size_t place = is_big ? element.size() - 1 - b : b;
    word |= static_cast<uint64_t>(element[b]) << (8 * place);
  }
  return word;
}

Result<int64_t> integer_of(const OpenArray& array, uint64_t i) {
  const uint64_t word = word_of(array, i);
  const uint64_t unused = 64 - 8 * array.element_bytes;
  if (kind_of(array.header) == 'i') return static_cast<int64_t>(word << unused) >> unused;
  if (word <= INT64_MAX) return static_cast<int64_t>(word);
  return base::corrupt(fmt::format("{}: {} is above 2^63 - 1", array.field.name, word));
}

double float_of(const OpenArray& array, uint64_t i) {
  const uint64_t word = word_of(array, i);
  if (array.element_bytes == 8) return std::bit_cast<double>(word);
  return std::bit_cast<float>(static_cast<uint32_t>(word));
}

Status read_elements(const std::vector<OpenArray>& arrays, uint64_t i, BetonSample& out) {
  out.values.assign(arrays.size(), {});
  for (size_t a = 0; a < arrays.size(); ++a) {
    const OpenArray& array = arrays[a];
    BetonValue& value = out.values[a];
    switch (array.field.type) {
      case BetonType::kInt: {
        HANJI_ASSIGN_OR_RETURN(value.integer, integer_of(array, i));
        break;
      }
      case BetonType::kFloat: value.number = float_of(array, i); break;
      case BetonType::kRgbImage:
        value.height = static_cast<uint16_t>(array.header.shape[1]);
        value.width = static_cast<uint16_t>(array.header.shape[2]);
        [[fallthrough]];
      default: value.bytes = array.element(i);
    }
  }
  return {};
}

}  // namespace

Result<BetonRecipe> array_recipe(std::span<const NamedArray> named) {
  const auto arrays = std::make_shared<std::vector<OpenArray>>();
  BetonRecipe recipe{.provenance = R"({"samples":"arrays"})"};
  uint64_t largest = 0;
  for (const NamedArray& one : named) {
    HANJI_ASSIGN_OR_RETURN(OpenArray open, open_array(one));
    const uint64_t count = open.header.shape[0];
    if (!arrays->empty() && count != recipe.num_samples) {
      return base::invalid_argument(
          fmt::format("{}: {} elements, {} has {}; arrays have one length", one.path.native(),
                      count, named[0].path.native(), recipe.num_samples));
    }
    recipe.num_samples = count;
    recipe.key = base::mix(recipe.key, key_of_file(one.path));
    recipe.fields.push_back(open.field);
    if (internal::is_in_heap(open.field.type)) {
      recipe.max_sample_bytes += open.element_bytes;
      if (open.element_bytes > largest) {
        recipe.largest = fmt::format("{}, field {}", one.path.native(), open.field.name);
      }
      largest = std::max<uint64_t>(largest, open.element_bytes);
    }
    arrays->push_back(std::move(open));
  }
  recipe.read = [arrays](uint64_t i, BetonSample& out) { return read_elements(*arrays, i, out); };
  return recipe;
}

}  // namespace hanji::data
