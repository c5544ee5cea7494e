#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"

namespace hanji::train::job_table {

/// One value of a property of jobs, as settings of a configuration.
struct Value {
  std::string_view name;
  std::vector<std::string_view> of_plan = {};  ///< Settings that one process does without.
  std::vector<std::string_view> of_job = {};   ///< Settings that one process has too.
  int ranks = 1;                               ///< Ranks that share one data coordinate.
  int coordinates = 0;                         ///< Data coordinates; 0: as other properties say.
};

struct Property {
  std::string_view name;
  std::vector<Value> values;  ///< The first one is that of a job of which nothing else is asked.
};

/// Model, mesh, strategy, bits and dtype, option, hosts.
std::span<const Property> properties();

/// One job: the index of a value for each property.
using Row = std::vector<size_t>;

std::string to_string(const Row& row);
/// Reads the names of values, one for each property in order, between spaces. Errors: throws for others.
Row row_of(std::string_view text);

/// The rows that are trained: every two values that some job can have together are together in one of them.
std::vector<Row> rows();

struct PlannedRow {
  plan::Plan alone;  ///< One process.
  plan::Plan ranks;
  std::vector<int> hosts;  ///< Ranks of each host.
};

/// Plans a row on a machine of two made-up cores. Counted facts of models are kept from row to row.
/// Errors  the first of configuration or plan if its values exclude each other.
Result<PlannedRow> planned(const Row& row);

const Dataset& dataset_of(const Row& row);
bool is_stable(const Row& row);

}  // namespace hanji::train::job_table
