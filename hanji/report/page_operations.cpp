#include <fmt/format.h>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/internal/html.h"
#include "hanji/report/internal/page_sections.h"
#include "hanji/report/roofline.h"

namespace hanji::report::internal {
namespace {

constexpr size_t kMaxRows = 15;

std::string table_of_operations(const OperationsRecord& record) {
  HtmlTable table(fmt::format("operations of rank {} in steps {} to {}, the longest", record.rank,
                              record.first_step, record.last_step),
                  {{"number"},
                   {"operation", true},
                   {"phase", true},
                   {"calls"},
                   {"share of the time"},
                   {"flop/byte"},
                   {"of the roof"}});
  const std::vector<OperationRow> rows = by_operation(record);
  for (size_t i = 0; i < rows.size() && i < kMaxRows; ++i) {
    const RoofPoint point = roof_point(rows[i], record.roof);
    table.add({std::to_string(i + 1), rows[i].operation, rows[i].phase,
               std::to_string(rows[i].calls),
               fmt::format("{:.1f} %", 100 * rows[i].seconds / record.seconds),
               rows[i].flops > 0 ? fmt::format("{:.2f}", point.flops_per_byte) : "moves bytes",
               point.share ? fmt::format("{:.0f} %", 100 * *point.share) : "not measured"});
  }
  return table.html();
}

}  // namespace

std::string operations_section(const RunRecords& run) {
  if (run.operations.empty()) return "";
  const OperationsRecord& record = run.operations.front();
  return section("Operations",
                 figure(roofline_svg(record), "Roofline",
                        fmt::format("Rank {}: each circle is an operation, its area the share of "
                                    "the time, its number that of the table.",
                                    record.rank)) +
                     table_of_operations(record));
}

}  // namespace hanji::report::internal
