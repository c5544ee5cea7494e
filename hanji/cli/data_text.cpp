#include "hanji/cli/data_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hanji/base/json.h"
#include "hanji/base/units.h"

namespace hanji::cli {
namespace {

using base::counted;
using base::Json;
using data::BetonField;
using data::BetonFile;
using data::BetonMistake;
using data::BetonSections;

struct PageUse {
  uint64_t allocations = 0;
  uint64_t bytes = 0;
};

/// What the allocation table says of each page; rows outside of the heap count in none.
std::vector<PageUse> page_uses(const BetonFile& file) {
  std::vector<PageUse> pages(file.sections().num_pages);
  for (uint64_t row = 0; row < file.sections().num_allocations; ++row) {
    const data::BetonAllocation one = file.allocation(row);
    const auto page = file.page_of(one.begin);
    if (!page) continue;
    ++pages[*page].allocations;
    pages[*page].bytes += one.size;
  }
  return pages;
}

std::string size_text(uint64_t bytes) { return base::format_bytes(static_cast<int64_t>(bytes)); }

std::string describe_field(const BetonField& field) {
  const std::string type(data::name_of(field.type));
  if (field.dtype.empty()) return type;
  return fmt::format("{} {} [{}]", type, field.dtype, fmt::join(field.shape, ", "));
}

Json page_json(const PageUse& page) {
  return {{"allocations", page.allocations}, {"bytes", page.bytes}};
}

Json field_json(const BetonField& field) {
  Json json = {{"name", field.name}, {"type", data::name_of(field.type)}};
  if (!field.dtype.empty()) {
    json["dtype"] = field.dtype;
    json["shape"] = field.shape;
  }
  return json;
}

Json mistake_json(const BetonMistake& mistake) {
  Json json = Json::object();
  if (mistake.page) json["page"] = *mistake.page;
  if (mistake.sample) json["sample"] = *mistake.sample;
  json["message"] = mistake.message;
  return json;
}

std::string mistake_text(const BetonMistake& mistake) {
  std::string text;
  if (mistake.page) text += fmt::format("page {}", *mistake.page);
  if (mistake.sample) text += fmt::format("{}sample {}", text.empty() ? "" : ", ", *mistake.sample);
  return (text.empty() ? text : text + ": ") + mistake.message + "\n";
}

}  // namespace

std::string beton_info_text(const std::string& path, const BetonFile& file) {
  const BetonSections& s = file.sections();
  std::string text =
      fmt::format("{}: .beton version 2, {}, {}\n\n", path, counted(s.num_samples, "sample"),
                  file.has_checksums() ? "with checksums" : "without checksums");
  for (const BetonField& field : file.fields()) {
    text += fmt::format("  {:<17} {}\n", field.name, describe_field(field));
  }
  text += fmt::format("\nrecords  {} of {} bytes at byte {}\n", s.num_samples, s.record_bytes,
                      s.metadata_begin);
  text += fmt::format("heap     {} of {} at byte {}\n", counted(s.num_pages, "page"),
                      size_text(s.page_bytes), s.heap_begin);
  text += fmt::format("table    {} at byte {}\n", counted(s.num_allocations, "allocation"),
                      s.table_begin);
  if (file.has_checksums()) text += fmt::format("made by  {}\n", file.provenance());
  const auto pages = page_uses(file);
  if (!pages.empty()) text += fmt::format("\n{:>8} {:>12} {:>10}\n", "page", "allocations", "used");
  for (size_t page = 0; page < pages.size(); ++page) {
    text += fmt::format("{:>8} {:>12} {:>10}\n", page, pages[page].allocations,
                        size_text(pages[page].bytes));
  }
  return text;
}

std::string beton_info_json(const std::string& path, const BetonFile& file) {
  const BetonSections& s = file.sections();
  Json fields = Json::array();
  for (const BetonField& field : file.fields()) fields.push_back(field_json(field));
  Json pages = Json::array();
  for (const PageUse& page : page_uses(file)) pages.push_back(page_json(page));
  const auto provenance = base::parse_json(file.provenance());
  const Json json = {{"file", path},
                     {"version", 2},
                     {"samples", s.num_samples},
                     {"fields", fields},
                     {"records", {{"begin", s.metadata_begin}, {"bytes", s.record_bytes}}},
                     {"heap", {{"begin", s.heap_begin}, {"page_bytes", s.page_bytes}}},
                     {"pages", pages},
                     {"table", {{"begin", s.table_begin}, {"allocations", s.num_allocations}}},
                     {"checksums", file.has_checksums()},
                     {"provenance", provenance.ok() ? *provenance : Json()}};
  return base::dump(json, 1) + "\n";
}

std::string beton_mistakes_text(const std::string& path, const BetonFile* file,
                                const std::vector<BetonMistake>& mistakes) {
  std::string text;
  for (const BetonMistake& mistake : mistakes) text += mistake_text(mistake);
  if (!mistakes.empty())
    return text + fmt::format("{}: {}\n", path, counted(std::ssize(mistakes), "mistake"));
  const int64_t samples = file->num_samples();
  return fmt::format(
      "{}: {} in {} {} good ({})\n", path, counted(samples, "sample"),
      counted(file->sections().num_pages, "page"), samples == 1 ? "is" : "are",
      file->has_checksums() ? "checksums and bounds" : "bounds; the file has no checksums");
}

std::string beton_mistakes_json(const std::string& path, const BetonFile* file,
                                const std::vector<BetonMistake>& mistakes) {
  Json list = Json::array();
  for (const BetonMistake& mistake : mistakes) list.push_back(mistake_json(mistake));
  const Json json = {{"file", path},
                     {"samples", file == nullptr ? 0 : file->num_samples()},
                     {"checksums", file != nullptr && file->has_checksums()},
                     {"mistakes", list}};
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::cli
