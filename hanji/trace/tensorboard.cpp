#include "hanji/trace/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "hanji/base/clock.h"
#include "hanji/trace/internal/tensorboard_record.h"

namespace hanji::trace {
namespace {

double wall_seconds() { return static_cast<double>(base::wall_ns()) * 1e-9; }

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace

Result<TensorBoardWriter> TensorBoardWriter::open(const std::filesystem::path& directory) {
  HANJI_RETURN_IF_ERROR(base::make_directories(directory));
  const std::filesystem::path path =
      directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                              base::wall_ns() / 1'000'000'000, host_name(), ::getpid(),
                              base::now_ns());
  HANJI_ASSIGN_OR_RETURN(auto file, base::OutputFile::open(path, base::OutputFile::Mode::kNew));
  TensorBoardWriter writer(std::move(file), path);
  HANJI_RETURN_IF_ERROR(writer.write(internal::version_event(wall_seconds())));
  return writer;
}

Status TensorBoardWriter::scalar(std::string_view tag, int64_t step, double value) {
  return write(internal::scalar_event(wall_seconds(), step, tag, static_cast<float>(value)));
}

Status TensorBoardWriter::text(std::string_view tag, int64_t step, std::string_view text) {
  return write(internal::text_event(wall_seconds(), step, tag, text));
}

Status TensorBoardWriter::restart(int64_t step) {
  return write(internal::restart_event(wall_seconds(), step));
}

Status TensorBoardWriter::write(std::string_view event) {
  HANJI_RETURN_IF_ERROR(file_.append(internal::frame(event)));
  return file_.flush();
}

}  // namespace hanji::trace
