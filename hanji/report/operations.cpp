#include "hanji/report/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "hanji/base/file.h"
#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using base::Json;

constexpr std::string_view kOperationsFolder = "operations";

Json operations_header(const OperationsRecord& record) {
  Json other = nullptr;
  if (record.other_step_seconds) other = *record.other_step_seconds;
  return {{"format", kOperationsFormat},
          {"rank", record.rank},
          {"ranks", record.ranks},
          {"first_step", record.first_step},
          {"last_step", record.last_step},
          {"threads", record.threads},
          {"roof_flops_per_second", record.roof.flops_per_second},
          {"roof_bytes_per_second", record.roof.bytes_per_second},
          {"seconds", record.seconds},
          {"waits", record.waits},
          {"step_seconds", record.step_seconds},
          {"other_step_seconds", other}};
}

Json operation_line(const OperationRow& row) {
  return {{"operation", row.operation},
          {"layer", row.layer},
          {"phase", row.phase},
          {"calls", row.calls},
          {"seconds", std::round(row.seconds * 1e9) / 1e9},
          {"flops", row.flops},
          {"bytes", row.bytes},
          {"memory_bytes", row.memory_bytes}};
}

template <class T>
Status read_member(const Json& json, const char* name, T& value) {
  const auto found = json.find(name);
  if (found == json.end()) return base::corrupt(std::string(name) + " is missing");
  const bool fits = std::is_same_v<T, std::string> ? found->is_string()
                    : std::is_integral_v<T>        ? found->is_number_integer()
                                                   : found->is_number();
  if (!fits) return base::corrupt(std::string(name) + " is of another type");
  value = found->template get<T>();
  return {};
}

Status read_operations_header(const Json& json, OperationsRecord& record) {
  int64_t format = 0;
  HANJI_RETURN_IF_ERROR(read_member(json, "format", format));
  if (format != kOperationsFormat) {
    return base::corrupt(fmt::format("format is {}, and {} is read", format, kOperationsFormat));
  }
  HANJI_RETURN_IF_ERROR(read_member(json, "rank", record.rank));
  HANJI_RETURN_IF_ERROR(read_member(json, "ranks", record.ranks));
  HANJI_RETURN_IF_ERROR(read_member(json, "first_step", record.first_step));
  HANJI_RETURN_IF_ERROR(read_member(json, "last_step", record.last_step));
  HANJI_RETURN_IF_ERROR(read_member(json, "threads", record.threads));
  HANJI_RETURN_IF_ERROR(read_member(json, "roof_flops_per_second", record.roof.flops_per_second));
  HANJI_RETURN_IF_ERROR(read_member(json, "roof_bytes_per_second", record.roof.bytes_per_second));
  HANJI_RETURN_IF_ERROR(read_member(json, "seconds", record.seconds));
  HANJI_RETURN_IF_ERROR(read_member(json, "waits", record.waits));
  HANJI_RETURN_IF_ERROR(read_member(json, "step_seconds", record.step_seconds));
  const auto other = json.find("other_step_seconds");
  if (other == json.end() || other->is_null()) return {};
  return read_member(json, "other_step_seconds", record.other_step_seconds.emplace());
}

Status read_operation_row(const Json& json, OperationsRecord& record) {
  OperationRow& row = record.rows.emplace_back();
  HANJI_RETURN_IF_ERROR(read_member(json, "operation", row.operation));
  HANJI_RETURN_IF_ERROR(read_member(json, "layer", row.layer));
  HANJI_RETURN_IF_ERROR(read_member(json, "phase", row.phase));
  HANJI_RETURN_IF_ERROR(read_member(json, "calls", row.calls));
  HANJI_RETURN_IF_ERROR(read_member(json, "seconds", row.seconds));
  HANJI_RETURN_IF_ERROR(read_member(json, "flops", row.flops));
  HANJI_RETURN_IF_ERROR(read_member(json, "bytes", row.bytes));
  return read_member(json, "memory_bytes", row.memory_bytes);
}

Status read_operation_line(std::string_view line, bool is_header, OperationsRecord& record) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(line));
  if (!json.is_object()) return base::corrupt("it is no object");
  return is_header ? read_operations_header(json, record) : read_operation_row(json, record);
}

}  // namespace

std::filesystem::path operations_file(int rank) {
  return std::filesystem::path(kOperationsFolder) / fmt::format("rank.{}.jsonl", rank);
}

std::string to_jsonl(const OperationsRecord& record) {
  std::string text = base::dump(operations_header(record)) + "\n";
  for (const OperationRow& row : record.rows) text += base::dump(operation_line(row)) + "\n";
  return text;
}

Result<OperationsRecord> operations_from_jsonl(std::string_view text) {
  OperationsRecord record;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Status status = read_operation_line(text.substr(0, end), number == 0, record);
    ++number;
    if (!status.ok()) return base::corrupt(fmt::format("line {}: {}", number, status.message()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (number == 0) return base::corrupt("line 1: it is missing");
  return record;
}

Result<std::vector<OperationsRecord>> read_operations(const std::filesystem::path& folder) {
  std::vector<OperationsRecord> records;
  if (!std::filesystem::exists(folder / kOperationsFolder)) return records;  // nothing was profiled
  HANJI_ASSIGN_OR_RETURN(const auto files, base::list_files(folder / kOperationsFolder));
  for (const auto& path : files) {
    HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
    auto record = operations_from_jsonl(text);
    if (!record.ok()) return base::corrupt(path.string() + ": " + record.status().message());
    records.push_back(*std::move(record));
  }
  std::ranges::sort(records, {}, &OperationsRecord::rank);
  return records;
}

std::vector<OperationRow> by_operation(const OperationsRecord& record) {
  std::vector<OperationRow> sums;
  for (const OperationRow& row : record.rows) {
    const auto found = std::ranges::find_if(sums, [&](const OperationRow& sum) {
      return sum.operation == row.operation && sum.phase == row.phase;
    });
    if (found == sums.end()) {
      sums.push_back(row);
      sums.back().layer = -1;
      continue;
    }
    found->calls += row.calls;
    found->seconds += row.seconds;
    found->flops += row.flops;
    found->bytes += row.bytes;
    found->memory_bytes = std::max(found->memory_bytes, row.memory_bytes);
  }
  std::ranges::stable_sort(sums, std::greater(), &OperationRow::seconds);
  return sums;
}

RoofPoint roof_point(const OperationRow& row, const Roof& roof) {
  RoofPoint point;
  const auto bytes = static_cast<double>(row.bytes);
  if (row.bytes > 0) point.flops_per_byte = row.flops / bytes;
  if (row.seconds <= 0) return point;
  point.flops_per_second = row.flops / row.seconds;
  point.bytes_per_second = bytes / row.seconds;
  if (row.flops > 0 && row.bytes > 0 && roof.flops_per_second > 0 && roof.bytes_per_second > 0) {
    const double limit =
        std::min(roof.flops_per_second, point.flops_per_byte * roof.bytes_per_second);
    point.share = point.flops_per_second / limit;
  } else if (row.flops == 0 && row.bytes > 0 && roof.bytes_per_second > 0) {
    point.share = point.bytes_per_second / roof.bytes_per_second;
  }
  return point;
}

}  // namespace hanji::report
