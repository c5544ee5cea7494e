#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hanji/base/limits.h"
#include "hanji/plan/schema.h"

/// How the keys of the schema are written down: HANJI_KEY(path, doc) of a field of Config, inside a type.
namespace hanji::plan::keys {

inline constexpr double kMaxNumber =
    1e15;  // far above any count, far below what int64 or double can hold
inline constexpr double kMaxOfAKey = 1LL << 50;

struct Limits {
  double min = 0;
  double max = kMaxNumber;
};

enum class Auto : bool { kNo, kYes };

template <class Field>
using FieldType = std::remove_reference_t<std::invoke_result_t<Field, Config&>>;

/// Name, accessors and documentation; `field` returns a reference into a Config.
template <class Field>
Key make_key(std::string_view name, Field field, std::string_view doc) {
  using T = FieldType<Field>;
  Key key;
  key.name = name;
  key.doc = doc;
  if constexpr (std::is_enum_v<T>) {
    key.type = KeyType::kChoice;
    key.choices = kWords<T>;
    key.get = [field](const Config& c) -> Value {
      return static_cast<int64_t>(field(const_cast<Config&>(c)));
    };
    key.set = [field](Config& c, const Value& v) {
      field(c) = static_cast<T>(std::get<int64_t>(v));
    };
  } else {
    key.get = [field](const Config& c) -> Value { return field(const_cast<Config&>(c)); };
    key.set = [field](Config& c, const Value& v) { field(c) = std::get<T>(v); };
  }
  return key;
}

inline Key typed(Key key, KeyType type, std::string_view unit, Limits limits, Auto may_be_auto) {
  key.type = type;
  key.unit = unit;
  key.min = limits.min;
  key.max = limits.max;
  key.may_be_auto = may_be_auto == Auto::kYes;
  return key;
}

inline Key integer(Key key, std::string_view unit, Limits limits, Auto may_be_auto = Auto::kNo) {
  return typed(std::move(key), KeyType::kInteger, unit, limits, may_be_auto);
}
inline Key real(Key key, Limits limits) {
  return typed(std::move(key), KeyType::kReal, "", limits, Auto::kNo);
}
inline Key text(Key key) { return typed(std::move(key), KeyType::kText, "", {}, Auto::kNo); }
inline Key stages(Key key) { return typed(std::move(key), KeyType::kStages, "", {}, Auto::kNo); }
inline Key boolean(Key key) { return typed(std::move(key), KeyType::kBoolean, "", {}, Auto::kNo); }
inline Key bytes(Key key, Limits limits) {
  return typed(std::move(key), KeyType::kBytes, "bytes", limits, Auto::kNo);
}
inline Key seconds(Key key, Limits limits) {
  return typed(std::move(key), KeyType::kSeconds, "seconds", limits, Auto::kNo);
}
inline Key reals(Key key, Limits limits) {
  return typed(std::move(key), KeyType::kReals, "", limits, Auto::kNo);
}
inline Key rare(Key key) {
  key.rare = true;
  return key;
}
/// Blocks of what a mesh may cut.
inline Key cuts(Key key) { return rare(integer(std::move(key), "blocks", {1, base::kMaxRanks})); }
/// Ranks that see the same samples.
inline Key cut_axis(Key key) {
  return rare(integer(std::move(key), "ranks", {1, base::kMaxRanks}));
}
inline Key choice(Key key, std::span<const Refusal> refusals = {}) {
  key.refusals = refusals;
  return key;
}

/// Keys of the table [data]: of text and tokens, of images, of how files are loaded, of pairs.
std::vector<Key> data_keys();
std::vector<Key> image_keys();
std::vector<Key> loader_keys();
std::vector<Key> pair_keys();

}  // namespace hanji::plan::keys

#define HANJI_KEY(path, doc) \
  make_key(                  \
      #path, [](Config & c) -> auto& { return c.path; }, doc)
