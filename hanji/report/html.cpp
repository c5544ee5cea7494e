#include "hanji/report/internal/html.h"

#include <fmt/format.h>

#include "hanji/base/text.h"
#include "hanji/report/internal/svg.h"

namespace hanji::report::internal {
namespace {

using base::xml_escape;

std::string scroll_box(std::string_view name, std::string_view content) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n{}</div>\n",
      attribute(name), content);
}

}  // namespace

std::string HtmlTable::html() const {
  if (rows_.empty()) return "";
  std::string text =
      fmt::format("<table{}>\n<caption>{}</caption>\n<thead><tr>",
                  columns_.back().is_words ? " class=\"facts\"" : "", xml_escape(caption_));
  for (const Column& one : columns_) {
    text += fmt::format("<th scope=\"col\"{}>{}</th>", one.is_words ? " class=\"words\"" : "",
                        xml_escape(one.heading));
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows_) {
    text += fmt::format("<tr><th scope=\"row\">{}</th>", xml_escape(row.front()));
    for (size_t i = 1; i < columns_.size(); ++i) {
      text += fmt::format("<td{}>{}</td>", columns_[i].is_words ? " class=\"words\"" : "",
                          i < row.size() ? xml_escape(row[i]) : "");
    }
    text += "</tr>\n";
  }
  return scroll_box(caption_, text + "</tbody>\n</table>\n");
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  return css_class.empty() ? fmt::format("<p>{}</p>\n", xml_escape(text))
                           : fmt::format("<p class=\"{}\">{}</p>\n", css_class, xml_escape(text));
}

std::string section(std::string_view heading, std::string_view content) {
  if (content.empty()) return "";
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", xml_escape(heading), content);
}

std::string figure(std::string_view svg, std::string_view name, std::string_view caption) {
  if (svg.empty()) return "";
  return fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", scroll_box(name, svg),
                     xml_escape(caption));
}

}  // namespace hanji::report::internal
