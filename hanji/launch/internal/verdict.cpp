#include "hanji/launch/internal/verdict.h"

#include "hanji/base/json.h"

namespace hanji::launch {

std::string to_json(const Verdict& verdict) {
  const base::Json json = {
      {"node", verdict.node}, {"exit_code", verdict.exit_code}, {"text", verdict.text}};
  return base::dump(json);
}

Result<Verdict> parse_verdict(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 4));
  const bool whole = json.is_object() && json.contains("node") &&
                     json["node"].is_number_integer() && json.contains("exit_code") &&
                     json["exit_code"].is_number_integer() && json.contains("text") &&
                     json["text"].is_string();
  if (!whole) return base::corrupt("a verdict that no launcher of ours writes");
  return Verdict{json["node"].get<int>(), json["exit_code"].get<int>(),
                 json["text"].get<std::string>()};
}

}  // namespace hanji::launch
