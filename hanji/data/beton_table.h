#pragma once

#include <filesystem>
#include <string>

#include "hanji/data/make_beton.h"

namespace hanji::data {

/// The rows of a CSV file, the first line of which names the columns: a field per column.
///
/// A column is an int if all its values are whole numbers, a float if all are numbers, else bytes.
struct TableOptions {
  std::string image_column =
      {};  ///< Paths of JPEG files, relative to the table's folder: an image.
  std::string class_column = {};  ///< An int: the place of the value among the sorted values.
};

/// Result  samples in the order of the rows; the provenance has the classes.
/// Cost    the file is mapped and read once; 8 bytes per row.
/// Errors  kNotFound; kCorrupt with the line; kInvalidArgument for a column that is not there, and
///         for a column of numbers with empty values. read(): kCorrupt for an image that is no JPEG.
Result<BetonRecipe> table_recipe(const std::filesystem::path& path,
                                 const TableOptions& options = {});

}  // namespace hanji::data
