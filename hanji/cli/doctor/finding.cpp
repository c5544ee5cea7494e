#include "hanji/cli/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/cli/exit_code.h"

namespace hanji::cli {
namespace {

int64_t count(const Findings& findings, Verdict verdict) {
  return std::ranges::count(findings, verdict, &Finding::verdict);
}

constexpr int kValueAt = 25;  // columns before values and advice

std::string mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood: return "  ";
    case Verdict::kNote: return "! ";
    case Verdict::kBroken: return "X ";
  }
  return "? ";
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood: return "good";
    case Verdict::kNote: return "note";
    case Verdict::kBroken: return "broken";
  }
  return "unknown";
}

std::string to_text(const Findings& findings, int columns) {
  std::string out, section;
  for (const Finding& one : findings) {
    if (one.section != section) out += fmt::format("{}{}\n", out.empty() ? "" : "\n", one.section);
    section = one.section;
    const int hanging = one.verdict == Verdict::kGood ? kValueAt - 2 : kValueAt;
    out += base::wrap(fmt::format("{}{:<22} {}\n", mark(one.verdict), one.name, one.value), columns,
                      hanging);
    if (one.advice.empty()) continue;
    out += base::wrap(fmt::format("{:<{}}-> {}\n", "", kValueAt, one.advice), columns, 3);
  }
  const auto broken = count(findings, Verdict::kBroken);
  out += fmt::format("\n{} broken (X), {} to know (!)\n", broken, count(findings, Verdict::kNote));
  return out;
}

std::string to_json(const Findings& findings) {
  base::Json json = {{"broken", count(findings, Verdict::kBroken)},
                     {"notes", count(findings, Verdict::kNote)},
                     {"findings", base::Json::array()}};
  for (const Finding& one : findings) {
    json["findings"].push_back({{"section", one.section},
                                {"name", one.name},
                                {"value", one.value},
                                {"verdict", name_of(one.verdict)},
                                {"advice", one.advice}});
  }
  return base::dump(json, 1) + "\n";
}

int exit_code_of(const Findings& findings) {
  return count(findings, Verdict::kBroken) == 0 ? 0 : kUsage;
}

}  // namespace hanji::cli
