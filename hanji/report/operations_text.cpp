#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/operations.h"

namespace hanji::report {
namespace {

std::string operation_rate(const OperationRow& row, const RoofPoint& point) {
  if (row.flops > 0) return fmt::format("{:.1f}", point.flops_per_second * 1e-9);
  if (row.bytes == 0) return "-";
  const double gigabytes = point.bytes_per_second * 1e-9;
  return fmt::format("{:.{}f} GB/s", gigabytes, gigabytes < 10 ? 1 : 0);
}

std::string operation_share(double share) {
  return share > 0 && share < 0.005 ? "<1 %" : fmt::format("{:.0f} %", 100 * share);
}

/// Libtorch's own operations are most of them.
std::string short_operation(const std::string& operation) {
  constexpr std::string_view kLibtorch = "aten::";
  return operation.starts_with(kLibtorch) ? operation.substr(kLibtorch.size()) : operation;
}

std::vector<std::string> operation_cells(const OperationRow& row, const OperationsRecord& record) {
  const RoofPoint point = roof_point(row, record.roof);
  const double steps = static_cast<double>(record.num_steps());
  return {short_operation(row.operation),
          row.phase,
          fmt::format("{:.0f}", static_cast<double>(row.calls) / steps),
          base::format_seconds(row.seconds / steps),
          operation_share(row.seconds / record.seconds),
          row.flops > 0 && row.bytes > 0 ? fmt::format("{:.1f}", point.flops_per_byte) : "-",
          operation_rate(row, point),
          point.share ? operation_share(*point.share) : "-"};
}

std::string roof_sentence(const OperationsRecord& record) {
  const Roof& roof = record.roof;
  if (roof.flops_per_second <= 0 || roof.bytes_per_second <= 0) {
    return "The roof was not measured, because the plan has no rates of this host's kernels.\n";
  }
  return fmt::format(
      "Roof of a rank ({}, all ranks busy): {:.1f} GF/s of products, {:.1f} GB/s of memory; they "
      "meet at {:.1f} "
      "flop/byte. Bytes count each operand once.\n",
      base::counted(record.threads, "thread"), roof.flops_per_second * 1e-9,
      roof.bytes_per_second * 1e-9, roof.flops_per_second / roof.bytes_per_second);
}

std::string overhead_sentence(const OperationsRecord& record) {
  if (!record.other_step_seconds || *record.other_step_seconds <= 0) {
    return "What profiling costs was not measured, because no other steps lie beside the profiled "
           "ones.\n";
  }
  return fmt::format("A profiled step takes {}, others beside it {} ({:+.1f} %).\n",
                     base::format_seconds(record.step_seconds),
                     base::format_seconds(*record.other_step_seconds),
                     100 * (record.step_seconds / *record.other_step_seconds - 1));
}

std::string above_sentence(const std::vector<OperationRow>& rows, const OperationsRecord& record) {
  std::vector<std::string> above;
  for (const OperationRow& row : rows) {
    const auto share = roof_point(row, record.roof).share;
    // A smaller part of the time than a thousandth says nothing.
    if (!share || *share <= 1 || row.seconds < 1e-3 * record.seconds) continue;
    above.push_back(fmt::format("{} ({}, {:.0f} %)", row.operation, row.phase, 100 * *share));
  }
  if (above.empty()) return "";
  return fmt::format(
      "Above the roof, since operands lie in caches or the count is too large: {}.\n",
      fmt::join(above, ", "));
}

}  // namespace

std::string operations_text(const OperationsRecord& record, size_t rows, int columns) {
  using Align = base::TextTable::Align;
  const std::vector<OperationRow> sums = by_operation(record);
  base::TextTable table({{"operation", Align::kLeft},
                         {"phase", Align::kLeft},
                         {"calls"},
                         {"time"},
                         {"share"},
                         {"flop/B"},
                         {"GF/s"},
                         {"roof"}});
  OperationRow rest;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (i < rows) {
      table.add(operation_cells(sums[i], record));
    } else {
      rest.calls += sums[i].calls;
      rest.seconds += sums[i].seconds;
    }
  }
  if (sums.size() > rows) {
    rest.operation = fmt::format("{} others", sums.size() - rows);
    table.add(operation_cells(rest, record));
  }
  table.add({"(waits)", "", "",
             base::format_seconds(record.waits / static_cast<double>(record.num_steps())),
             operation_share(record.waits / record.seconds)});
  const std::string steps = record.num_steps() == 1
                                ? fmt::format("step {}", record.first_step)
                                : fmt::format("steps {}-{}", record.first_step, record.last_step);
  return fmt::format("Operations of rank {} in {}, of a step:\n", record.rank, steps) +
         table.text(columns) +
         base::wrap(
             roof_sentence(record) + overhead_sentence(record) + above_sentence(sums, record),
             columns, 2);
}

}  // namespace hanji::report
