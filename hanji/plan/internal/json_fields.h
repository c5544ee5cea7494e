#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/json.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// Reads the members of one JSON object, each exactly once; remembers mistakes and returns harmless
/// values after them, so that a reader goes on and asks for status() at the end.
class JsonFields {
 public:
  JsonFields(const base::Json& json, std::string path);

  bool has(const std::string& name) const;
  /// May be there, for what nobody needs any more.
  void ignore(const char* name) { seen_.emplace(name); }
  int64_t integer(const char* name, int64_t min, int64_t max);
  double real(const char* name, double min, double max);  ///< Finite.
  bool boolean(const char* name);
  std::string text(const char* name);  ///< At most 1 MiB.
  /// A list of at most `max_size` members; an empty one after a mistake.
  const base::Json& list(const char* name, size_t max_size);
  JsonFields object(const char* name);

  template <class E>
  E word(const char* name) {
    const std::string found = text(name);
    const auto known = std::ranges::find(kWords<E>, found);
    if (known != kWords<E>.end()) return static_cast<E>(known - kWords<E>.begin());
    if (has(name)) fail(name, "is '" + found + "', which is none of its words");
    return {};
  }

  void fail(std::string_view name, std::string_view why);
  /// All mistakes, in about 2000 letters; members that nobody has read are among them.
  Status status() const;
  /// Takes over the mistakes of a part.
  void merge(const Status& status);
  const std::string& path() const { return path_; }

 private:
  const base::Json* find(const char* name);

  const base::Json* json_;
  std::string path_;
  std::set<std::string, std::less<>> seen_;
  Status status_;
};

/// Reads every member of the list `name` with `read(JsonFields&)`.
template <class Read>
auto read_list(JsonFields& fields, const char* name, size_t max_size, Read read) {
  std::vector<decltype(read(fields))> values;
  for (const base::Json& one : fields.list(name, max_size)) {
    JsonFields member(one, fields.path() + "." + name + "[" + std::to_string(values.size()) + "]");
    values.push_back(read(member));
    fields.merge(member.status());
  }
  return values;
}

/// Reads the object `name` with `read(JsonFields&)`.
template <class Read>
auto read_part(JsonFields& fields, const char* name, Read read) {
  JsonFields part = fields.object(name);
  auto value = read(part);
  fields.merge(part.status());
  return value;
}

/// Reads a text that is one object, called `name` in mistakes.
/// Errors  kCorrupt names the members.
template <class Value>
Result<Value> read_text(std::string_view text, const char* name, size_t max_bytes,
                        Value (*read)(JsonFields&)) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text, 16, max_bytes));
  JsonFields fields(json, name);
  Value value = read(fields);
  HANJI_RETURN_IF_ERROR(fields.status());
  return value;
}

base::Json config_to_json(const Config& config);
/// Strict; every key that the model reads must be there and none may be "auto".
Result<Config> config_from_json(JsonFields fields);

}  // namespace hanji::plan
