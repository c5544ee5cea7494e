#include "hanji/trace/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "hanji/base/atomic_file.h"
#include "hanji/base/dtype.h"
#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/trace/kernels.h"
#include "hanji/trace/timeline_rows.h"

namespace hanji::trace {
namespace {

using base::json_quote;
using base::OutputFile;

/// What PyTorch calls an element type in a trace.
std::string_view torch_name(uint8_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kFloat64: return "Double";
    case DType::kFloat32: return "Float";
    case DType::kBFloat16: return "BFloat16";
    case DType::kFloat16: return "Half";
    case DType::kInt32: return "Int";
    case DType::kInt64: return "Long";
    case DType::kUInt8: return "Byte";
    case DType::kInt8: return "Char";
    case DType::kBool: return "Bool";
    case DType::kFloat8E4M3FN: return "Float8_e4m3fn";
    case DType::kFloat8E5M2: return "Float8_e5m2";
  }
  return "Unknown";
}

/// Threads of a rank's process in the trace: a row of each lane, then more of them, and the streams far behind.
constexpr int kFirstStream = 1000;

std::string_view chrome_category(Category category) {
  return category == Category::kStep ? "user_annotation" : "cpu_op";
}

std::string chrome_name(const Event& event, const std::string& name) {
  if (event.category == Category::kStep) return fmt::format("ProfilerStep#{}", event.step);
  if (event.category == Category::kCommunication) return "nccl:" + name;
  return name;
}

/// Holistic Trace Analysis 0.5 knows what communicates by "nccl...Kernel", later ones by "nccl".
std::string kernel_name(const Kernel& kernel, const Recorder& recorder) {
  if (kernel.stream == Stream::kTransfer) {
    return "nccl:" + recorder.name(kernel.name) + " Kernel";
  }
  return kernel.name == 0 ? "between parts" : recorder.name(kernel.name);
}

std::string collective_arguments(const Event& event, const std::string& name) {
  std::string text = fmt::format(R"(,"Collective name":{},"Process Group Name":"default_pg")",
                                 json_quote(name.substr(0, name.find(' '))));
  if (event.group_size > 0) text += fmt::format(R"(,"Group size":{})", event.group_size);
  if (event.sequence >= 0) text += fmt::format(R"(,"Seq":{})", event.sequence);
  if (event.group >= 0) text += fmt::format(R"(,"group":{})", event.group);
  if (event.counts != 0) text += fmt::format(R"(,"counts":"{:08x}")", event.counts);
  if (event.dtype < base::kNumDTypes) {
    const auto element_bytes = static_cast<int64_t>(size_of(static_cast<DType>(event.dtype)));
    text += fmt::format(R"(,"dtype":"{}","In msg nelems":{})", torch_name(event.dtype),
                        event.bytes / element_bytes);
  }
  return text;
}

/// Begins a row of the timeline: whole microseconds of both ends, so that what nests still does.
std::string begin_line(std::string_view category, const std::string& name, int rank, int row,
                       std::pair<int64_t, int64_t> us) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{)", category,
      json_quote(name), rank, row, us.first, us.second - us.first);
}

std::string event_line(const Event& event, int row, const Recorder& recorder) {
  const std::string name = recorder.name(event.name);
  std::string text = begin_line(chrome_category(event.category), chrome_name(event, name),
                                recorder.rank(), static_cast<int>(event.lane) + row * kNumLanes,
                                {to_us(event.start_ns), to_us(event.end_ns)});
  text += fmt::format(R"("category":"{}","step":{})", name_of(event.category), event.step);
  if (event.bytes > 0) text += fmt::format(R"(,"bytes":{})", event.bytes);
  if (event.category == Category::kStep) text += R"(,"name":)" + json_quote(name);
  if (event.category == Category::kCommunication) text += collective_arguments(event, name);
  return text + "}}";
}

/// Analyses count what has a stream as work of a device, and "kernel" is what they call it.
std::string kernel_line(const Kernel& kernel, const Recorder& recorder) {
  const auto stream = static_cast<int>(kernel.stream);
  return begin_line("kernel", kernel_name(kernel, recorder), recorder.rank(), kFirstStream + stream,
                    {kernel.start_us, kernel.end_us}) +
         fmt::format(R"("category":"{}","step":{},"stream":{}}}}})", name_of(kernel.stream),
                     kernel.step, stream);
}

/// Which clock the times are of.
std::string clock_text(const ClockOffset& clock) {
  if (clock.is_own()) return R"({"of":"this host","error_ns":0})";
  return fmt::format(R"({{"of":"rank 0","offset_ns":{},"drift_ppm":{:.3f},"error_ns":{}}})",
                     clock.offset_ns(), clock.drift_ppm(), clock.error_ns());
}

/// Everything before the events, so that a streaming reader knows the rank first. The analysis finds
/// the rank by a pattern that asks for a space after the colon.
std::string header_text(const Recorder& recorder, const ClockOffset& clock) {
  std::vector<int> ranks(static_cast<size_t>(recorder.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const int size = recorder.world_size();
  return fmt::format(
      R"({{"schemaVersion":1,"deviceProperties":[],)"
      R"("distributedInfo":{{"backend":"hanji","rank": {},"world_size":{},"pg_count":1,)"
      R"("pg_config":[{{"pg_name":"default_pg","pg_desc":"default_pg","backend_config":"cpu:hanji",)"
      R"("pg_size":{},"ranks":[{}]}}]}},"displayTimeUnit":"ms","baseTimeNanoseconds":{},)"
      R"("clock":{},"dropped_events":{},"traceName":"rank {} of {}","traceEvents":[)",
      recorder.rank(), size, size, fmt::join(ranks, ","),
      recorder.wall_offset_ns() - clock.offset_ns(), clock_text(clock), recorder.num_dropped(),
      recorder.rank(), size);
}

std::string row_name(int rank, int row, const std::string& name) {
  return fmt::format(
      ",\n"
      R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
      rank, row, name);
}

/// Names of the rows: a process per rank, a thread per lane and stream.
std::string row_names(const Recorder& recorder, const std::array<int, kNumLanes>& rows) {
  const int rank = recorder.rank();
  std::string name = fmt::format("rank {}", rank);
  if (!recorder.coordinates().empty()) name += fmt::format(" ({})", recorder.coordinates());
  std::string text = fmt::format(
      "\n"
      R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":{}}}}})",
      rank, json_quote(name));
  for (int lane = 0; lane < kNumLanes; ++lane) {
    for (int row = 0; row < std::max(1, rows[lane]); ++row) {
      const std::string more = row == 0 ? "" : fmt::format(" {}", row + 1);
      text += row_name(rank, lane + row * kNumLanes,
                       std::string(name_of(static_cast<Lane>(lane))) + more);
    }
  }
  for (int stream = 0; stream < kNumStreams; ++stream) {
    text += row_name(rank, kFirstStream + stream,
                     fmt::format("stream {}: {}", stream, name_of(static_cast<Stream>(stream))));
  }
  return text;
}

Status write_all(OutputFile& file, const Recorder& recorder, const ClockOffset& clock) {
  std::vector<Event> events = recorder.events();
  for (Event& event : events) {
    event.start_ns = clock.convert(event.start_ns);
    event.end_ns = clock.convert(event.end_ns);
  }
  const std::vector<Kernel> kernels = kernels_of(events, recorder.num_dropped() == 0);
  std::erase_if(events, [](const Event& event) { return event.category == Category::kTransfer; });
  const std::vector<int> rows = rows_of(events);
  std::array<int, kNumLanes> num_rows{};
  for (size_t i = 0; i < events.size(); ++i) {
    int& most = num_rows[static_cast<size_t>(events[i].lane)];
    most = std::max(most, rows[i] + 1);
  }
  HANJI_RETURN_IF_ERROR(file.append(header_text(recorder, clock)));
  HANJI_RETURN_IF_ERROR(file.append(row_names(recorder, num_rows)));
  for (size_t i = 0; i < events.size(); ++i) {
    HANJI_RETURN_IF_ERROR(file.append(",\n" + event_line(events[i], rows[i], recorder)));
  }
  for (const Kernel& kernel : kernels) {
    HANJI_RETURN_IF_ERROR(file.append(",\n" + kernel_line(kernel, recorder)));
  }
  HANJI_RETURN_IF_ERROR(file.append("\n]}\n"));
  return file.close();
}

}  // namespace

Status write_chrome_trace(const std::filesystem::path& path, const Recorder& recorder,
                          const ClockOffset& clock) {
  if (path.extension() != ".json") {
    return base::invalid_argument("trace " + path.string() + ": analyses read only names in .json");
  }
  const std::filesystem::path partial = path.string() + ".partial";
  auto file = OutputFile::open(partial);
  Status status = file.ok() ? write_all(*file, recorder, clock) : file.status();
  if (status.ok()) status = base::rename_and_sync(partial, path);
  if (!status.ok()) static_cast<void>(base::remove_tree(partial));
  return base::as_error_of(path, partial, status);
}

}  // namespace hanji::trace
