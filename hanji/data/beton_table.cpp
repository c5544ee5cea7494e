#include "hanji/data/beton_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "hanji/base/file.h"
#include "hanji/base/random.h"
#include "hanji/data/beton_folder.h"
#include "hanji/data/internal/csv_table.h"
#include "hanji/data/internal/encoded_image.h"
#include "hanji/data/internal/text_encoding.h"

namespace hanji::data {
namespace internal {

/// How the values of a column become those of a field.
enum class ColumnUse : uint8_t { kInt, kFloat, kText, kImage, kClass };

struct TableColumn {
  ColumnUse use = ColumnUse::kInt;
  uint64_t max_bytes = 0;  ///< Of a text.
  std::optional<uint64_t> empty_row = {};
  bool has_number = false;
};

struct OpenTable {
  std::filesystem::path path;
  base::MappedFile file;
  CsvTable table;
  std::vector<TableColumn> columns;
  std::map<std::string, int64_t> classes;  ///< Of the column of classes.
  uint64_t max_image = kMinPageBytes;      ///< Bytes of an image that fit into a page.

  std::filesystem::path image(const std::string& value) const { return path.parent_path() / value; }
};

}  // namespace internal

namespace {

namespace fs = std::filesystem;
using internal::ColumnUse;
using internal::OpenTable;
using internal::TableColumn;

template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const char* end_of_text = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), end_of_text, value);
  if (error != std::errc() || end != end_of_text) return std::nullopt;
  return value;
}

/// Widens the use of a column so that it holds one more value.
void note_value(const std::string& value, uint64_t row, TableColumn& column) {
  column.max_bytes = std::max<uint64_t>(column.max_bytes, value.size());
  if (column.use > ColumnUse::kFloat) return;
  if (value.empty()) {
    if (!column.empty_row) column.empty_row = row;
    return;
  }
  // As a float, an integer of more digits than int64 has would be another one.
  const bool is_integer = value.find_first_not_of("+-0123456789") == std::string::npos;
  const bool is_number =
      is_integer ? number_of<int64_t>(value).has_value() : number_of<double>(value).has_value();
  if (!is_number) column.use = ColumnUse::kText;
  if (is_number && !number_of<int64_t>(value)) column.use = ColumnUse::kFloat;
  column.has_number |= is_number;
}

/// Passes over all rows once. Result: the most bytes of an image.
uint64_t read_columns(OpenTable& open) {
  uint64_t max_image = 0;
  for (uint64_t row = 0; row < open.table.num_rows(); ++row) {
    const auto values = open.table.row(row);
    for (size_t c = 0; c < values.size(); ++c) {
      TableColumn& column = open.columns[c];
      if (column.use == ColumnUse::kClass) open.classes.emplace(values[c], 0);
      if (column.use == ColumnUse::kImage) {
        max_image = std::max(max_image, internal::stored_bytes_of_file(open.image(values[c])));
      }
      note_value(values[c], row, column);
    }
  }
  open.max_image = std::max(open.max_image, max_image);
  int64_t number = 0;
  for (auto& one : open.classes) one.second = number++;
  return max_image;
}

Status check_columns(OpenTable& open) {
  for (size_t c = 0; c < open.columns.size(); ++c) {
    TableColumn& column = open.columns[c];
    if (column.use > ColumnUse::kFloat || !column.empty_row) continue;
    if (!column.has_number) {
      column.use = ColumnUse::kText;
      continue;
    }
    return base::invalid_argument(fmt::format(
        "{}: line {}: no value in column '{}', which has numbers elsewhere; fill it",
        open.path.native(), open.table.line_of(*column.empty_row), open.table.columns()[c]));
  }
  return {};
}

Status set_use(OpenTable& open, const std::string& name, ColumnUse use) {
  if (name.empty()) return {};
  const auto& names = open.table.columns();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    return base::invalid_argument(fmt::format("{}: no column '{}'; the columns are {}",
                                              open.path.native(), name, fmt::join(names, ", ")));
  }
  open.columns[static_cast<size_t>(found - names.begin())].use = use;
  return {};
}

BetonType type_of_use(ColumnUse use) {
  switch (use) {
    case ColumnUse::kInt:
    case ColumnUse::kClass: return BetonType::kInt;
    case ColumnUse::kFloat: return BetonType::kFloat;
    case ColumnUse::kText: return BetonType::kBytes;
    case ColumnUse::kImage: return BetonType::kRgbImage;
  }
  return BetonType::kBytes;
}

/// That a path names nothing, or no file, is wrong with this row alone.
Status of_row(const OpenTable& open, uint64_t row, size_t column, const Status& status) {
  const bool is_path = status.code() == Code::kNotFound || status.code() == Code::kInvalidArgument;
  const Status own = is_path ? base::corrupt(status.message()) : status;
  return own.at(
      fmt::format("line {}, column '{}'", open.table.line_of(row), open.table.columns()[column]));
}

Status read_row(const OpenTable& open, uint64_t row, BetonSample& out) {
  const auto texts = open.table.row(row);
  out.values.assign(texts.size(), {});
  out.bytes.clear();
  std::vector<size_t> begins;
  for (size_t c = 0; c < texts.size(); ++c) {
    BetonValue& value = out.values[c];
    begins.push_back(out.bytes.size());
    switch (open.columns[c].use) {
      case ColumnUse::kInt: value.integer = number_of<int64_t>(texts[c]).value_or(0); break;
      case ColumnUse::kClass: value.integer = open.classes.at(texts[c]); break;
      case ColumnUse::kFloat: value.number = number_of<double>(texts[c]).value_or(0); break;
      case ColumnUse::kText: {
        const auto bytes = std::as_bytes(std::span(texts[c]));
        out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
        break;
      }
      case ColumnUse::kImage: {
        auto image = internal::store_image_file(open.image(texts[c]), open.max_image, out.bytes);
        if (!image.ok()) return of_row(open, row, c, image.status());
        value = *std::move(image);
      }
    }
  }
  begins.push_back(out.bytes.size());
  for (size_t c = 0; c < texts.size(); ++c) {
    out.values[c].bytes = std::span(out.bytes).subspan(begins[c], begins[c + 1] - begins[c]);
  }
  return {};
}

}  // namespace

Result<BetonRecipe> table_recipe(const fs::path& path, const TableOptions& options) {
  HANJI_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  HANJI_RETURN_IF_ERROR(internal::check_width(path, text));
  const size_t mark = internal::utf8_mark_bytes(text);
  auto table = internal::CsvTable::parse(text.substr(mark));
  if (!table.ok()) return table.status().at(path.native());
  const size_t num_columns = table->columns().size();
  const auto open =
      std::make_shared<OpenTable>(OpenTable{.path = path,
                                            .file = std::move(file),
                                            .table = *std::move(table),
                                            .columns = std::vector<TableColumn>(num_columns),
                                            .classes = {}});
  if (!options.image_column.empty() && options.image_column == options.class_column) {
    return base::invalid_argument(
        fmt::format("{}: column '{}' cannot have images and classes; name another for one of them",
                    path.native(), options.image_column));
  }
  HANJI_RETURN_IF_ERROR(set_use(*open, options.image_column, ColumnUse::kImage));
  HANJI_RETURN_IF_ERROR(set_use(*open, options.class_column, ColumnUse::kClass));
  BetonRecipe recipe{.num_samples = open->table.num_rows(),
                     .max_sample_bytes = read_columns(*open),
                     .provenance = R"({"samples":"table"})",
                     .key = key_of_file(path)};
  HANJI_RETURN_IF_ERROR(check_columns(*open));
  if (mark > 0) recipe.notes = {internal::note_of_mark(path)};
  const uint64_t max_image = recipe.max_sample_bytes;
  uint64_t largest = 0;
  for (size_t c = 0; c < num_columns; ++c) {
    const TableColumn& column = open->columns[c];
    recipe.fields.push_back({.name = open->table.columns()[c], .type = type_of_use(column.use)});
    if (column.use == ColumnUse::kText) recipe.max_sample_bytes += column.max_bytes + 1;
    const bool is_image = column.use == ColumnUse::kImage;
    const uint64_t bytes = is_image                                       ? max_image
                           : type_of_use(column.use) == BetonType::kBytes ? column.max_bytes
                                                                          : 0;
    if (bytes > largest) {
      recipe.largest = fmt::format("{}, field {}", path.native(), open->table.columns()[c]);
    }
    largest = std::max(largest, bytes);
    recipe.key = base::mix(recipe.key, static_cast<uint64_t>(column.use));
  }
  if (!open->classes.empty()) {
    std::vector<std::string> classes;
    for (const auto& one : open->classes) classes.push_back(one.first);
    recipe.provenance = class_provenance("table", classes);
  }
  recipe.read = [open](uint64_t i, BetonSample& out) { return read_row(*open, i, out); };
  return recipe;
}

}  // namespace hanji::data
