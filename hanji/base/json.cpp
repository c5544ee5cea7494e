#include "hanji/base/json.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hanji/base/text.h"

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

/// Builds the value from the parser's events. The library's own builder searches all keys of an
/// object for every new one, which takes a hostile text's square in time; this one asks a hash set.
class Builder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(unescape_bytes(std::move(value))); }
  bool binary(Json::binary_t&) { return false; }  // JSON text holds none.

  bool start_object(size_t) {
    keys_.emplace_back();
    return open(Json::object());
  }
  bool key(std::string& escaped) {
    const std::string name = unescape_bytes(std::move(escaped));
    if (!keys_.back().insert(name).second) {
      status_ = corrupt("JSON: key '" + name + "' comes twice");
      return false;
    }
    // A vector beneath its name: appending does not search.
    open_.back()->get_ref<Json::object_t&>().emplace_back(name, nullptr);
    return true;
  }
  bool end_object() {
    keys_.pop_back();
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1 ...": the library's name of it tells nobody.
    const std::string_view text(error.what());
    const size_t begin = text.find("] ");
    const size_t said = begin == std::string_view::npos ? 0 : begin + 2;
    status_ = corrupt("JSON: " + std::string(text.substr(said)));
    return false;
  }

  Result<Json> take() {
    HANJI_RETURN_IF_ERROR(status_);
    return std::move(root_);
  }

 private:
  // Only the innermost open value ever grows, so the others stay where they are.
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& array = parent.get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    return &(object.back().second = std::move(value));
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(place(std::move(value)));
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;
  Status status_;
};

/// The same with strings of UTF-8 without U+0000.
Json escaped(const Json& json) {
  if (json.is_string()) return escape_bytes(json.get_ref<const std::string&>());
  if (json.is_array()) {
    Json all = Json::array();
    for (const Json& one : json) all.push_back(escaped(one));
    return all;
  }
  if (!json.is_object()) return json;
  Json all = Json::object();
  for (const auto& [key, value] : json.items()) all[escape_bytes(key)] = escaped(value);
  return all;
}

bool has_bytes(const Json& json) {
  if (json.is_string()) return holds_bytes(json.get_ref<const std::string&>());
  if (json.is_array()) return std::any_of(json.begin(), json.end(), has_bytes);
  if (!json.is_object()) return false;
  const auto& members = json.get_ref<const Json::object_t&>();
  return std::any_of(members.begin(), members.end(), [](const auto& member) {
    return holds_bytes(member.first) || has_bytes(member.second);
  });
}

}  // namespace

std::string dump(const Json& json, int indent) {
  return has_bytes(json) ? escaped(json).dump(indent) : json.dump(indent);
}

Result<Json> parse_json(std::string_view text, size_t max_depth, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return corrupt("JSON: " + std::to_string(text.size()) + " bytes, at most " +
                   std::to_string(max_bytes) + " allowed here");
  }
  HANJI_RETURN_IF_ERROR(check_depth(text, max_depth));
  Builder builder;
  try {
    if (!Json::sax_parse(text, &builder)) return builder.take();
  } catch (const Json::exception& error) {
    return corrupt(std::string("JSON: ") + error.what());
  }
  return builder.take();
}

}  // namespace hanji::base
