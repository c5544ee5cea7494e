#include "hanji/base/json.h"

#include <string>
#include <unordered_set>
#include <vector>

namespace hanji::base {
namespace {

/// Brackets outside strings, counted before the parser builds anything.
Status check_depth(std::string_view text, size_t max_depth) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if ((c == '}' || c == ']') && depth > 0) --depth;
    if ((c == '{' || c == '[') && ++depth > max_depth) {
      return corrupt("JSON: byte " + std::to_string(i) + ": more than " +
                     std::to_string(max_depth) + " brackets open");
    }
  }
  return {};
}

/// Remembers the keys of every open object and the first that comes twice.
class KeyWatch {
 public:
  bool operator()(int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) add(value.get_ref<const std::string&>());
    return true;
  }
  const std::string& repeated() const { return repeated_; }
  bool found() const { return found_; }

 private:
  void add(const std::string& key) {
    if (open_.back().insert(key).second || found_) return;
    found_ = true;
    repeated_ = key;
  }

  std::vector<std::unordered_set<std::string>> open_;
  std::string repeated_;
  bool found_ = false;
};

}  // namespace

Result<Json> parse_json(std::string_view text, size_t max_depth, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return corrupt("JSON: " + std::to_string(text.size()) + " bytes, at most " +
                   std::to_string(max_bytes) + " allowed here");
  }
  HANJI_RETURN_IF_ERROR(check_depth(text, max_depth));
  KeyWatch keys;
  try {
    Json value = Json::parse(text, std::ref(keys));
    if (keys.found()) return corrupt("JSON: key '" + keys.repeated() + "' comes twice");
    return value;
  } catch (const Json::exception& error) {
    return corrupt(std::string("JSON: ") + error.what());
  }
}

}  // namespace hanji::base
