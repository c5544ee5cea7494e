#include "hanji/cli/exercises/build_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "hanji/base/env.h"
#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/cli/exercises/check.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

std::string value_of_variable(std::string_view variable) {
  for (const base::NamedValue& one : base::read_environment()) {
    if (one.name == variable) return one.value;
  }
  return "";
}

bool is_on_path(const std::string& program) {
  const std::string path = value_of_variable("PATH");
  return std::ranges::any_of(base::split(path, ':'), [&](std::string_view folder) {
    return ::access((fs::path(folder) / program).c_str(), X_OK) == 0;
  });
}

/// Looks below a prefix where find_package() does.
bool has_package(const fs::path& prefix) {
  std::error_code ignored;
  for (const char* libraries : {"lib", "lib64", "share"}) {
    const fs::path folder = prefix / libraries;
    if (fs::exists(folder / "cmake/hanji/hanjiConfig.cmake", ignored)) return true;
    for (const auto& one : fs::directory_iterator(folder, ignored)) {  // lib/x86_64-linux-gnu
      if (fs::exists(one.path() / "cmake/hanji/hanjiConfig.cmake", ignored)) return true;
    }
  }
  return false;
}

/// What helps of a compiler's output: from its first error on.
std::string first_error(const std::string& output) {
  const size_t at = output.find("rror: ");
  if (at == std::string::npos) return last_lines(output, 6);
  const size_t begin = output.rfind('\n', at);
  const std::string rest = output.substr(begin == std::string::npos ? 0 : begin + 1);
  const auto lines = base::split(rest, '\n');
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, lines.size()); ++i)
    text += (i ? "\n" : "") + std::string(lines[i]);
  return text;
}

}  // namespace

fs::path package_prefix() { return base::executable_path().or_throw().parent_path().parent_path(); }

std::string missing_for_programs(const fs::path& prefix) {
  if (!is_on_path("cmake")) return "there is no `cmake` on PATH (Debian: cmake); install it";
  const bool has_compiler = !value_of_variable("CXX").empty() || is_on_path("c++") ||
                            is_on_path("g++") || is_on_path("clang++");
  if (!has_compiler)
    return "there is no C++ compiler on PATH (Debian: g++); install one, or name it by CXX";
  if (!is_on_path("make") && value_of_variable("CMAKE_GENERATOR").empty()) {
    return "there is no `make` on PATH (Debian: make); install it, or set CMAKE_GENERATOR=Ninja";
  }
  if (!has_package(prefix) && value_of_variable("CMAKE_PREFIX_PATH").empty()) {
    return fmt::format(
        "no CMake package of hanji lies below {}; install hanji's library there, or name its "
        "folder by CMAKE_PREFIX_PATH",
        prefix.string());
  }
  return "";
}

std::optional<std::string> build_program(const fs::path& source, const fs::path& build,
                                         const std::string& target, CommandRunner& runner) {
  using std::chrono_literals::operator""s;
  std::vector<std::string> configure = {"cmake", "-S", source, "-B", build};
  if (has_package(package_prefix())) {
    configure.push_back("-Dhanji_ROOT=" + package_prefix().string());
  }
  const CommandEnd configured = runner.run(configure, source, 120s);
  if (configured.timed_out) return "cmake did not end within 2 minutes";
  if (configured.exit_code != 0) return last_lines(configured.output, 8);
  const CommandEnd built =
      runner.run({"cmake", "--build", build, "--target", target}, source, 600s);
  if (built.timed_out) return "the compiler did not end within 10 minutes";
  if (built.exit_code != 0) return first_error(built.output);
  return std::nullopt;
}

}  // namespace hanji::cli
