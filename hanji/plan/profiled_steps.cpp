#include "hanji/plan/profiled_steps.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "hanji/base/units.h"

namespace hanji::plan {
namespace {

void skip(std::string_view& text, std::string_view word) {
  if (text.starts_with(word)) text.remove_prefix(word.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
}

/// A step's number, from 1.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

Result<layout::Range> profiled_steps(std::string_view text) {
  std::string_view rest = text;
  skip(rest, "");
  if (rest.empty()) return layout::Range{0, 0};
  skip(rest, rest.starts_with("steps") ? "steps" : "step");
  const std::optional<int64_t> first = take_number(rest);
  std::optional<int64_t> last = first;
  skip(rest, "");
  if (first && rest.starts_with('-')) {
    skip(rest, "-");
    last = take_number(rest);
    skip(rest, "");
  }
  if (!first || !last || !rest.empty()) {
    return base::invalid_argument(
        fmt::format("is \"{}\", which is no range of steps, counted from 1", text));
  }
  if (*last < *first) {
    return base::invalid_argument(
        fmt::format("is \"{}\", whose last step lies before its first", text));
  }
  if (*last - *first >= kMaxProfiledSteps) {
    return base::invalid_argument(fmt::format("is \"{}\", {}; at most {} are profiled", text,
                                              base::counted(*last - *first + 1, "step"),
                                              kMaxProfiledSteps));
  }
  return layout::Range{*first - 1, *last};
}

}  // namespace hanji::plan
