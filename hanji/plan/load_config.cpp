#include "hanji/plan/load_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <tuple>

#include "hanji/base/file.h"
#include "hanji/base/process_path.h"
#include "hanji/base/text.h"
#include "hanji/plan/internal/toml.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/schema.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::plan {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxSuggestions = 50;  // a file of rubbish shall not cost a minute
constexpr size_t kMaxListedKeys = 8;

std::string_view member_of(std::string_view key) { return key.substr(key.find('.') + 1); }
std::string_view table_of(std::string_view key) { return key.substr(0, key.find('.')); }

/// The key that `name` was meant to be: near in the same table, the same word in another table, or
/// near anywhere.
std::optional<std::string> nearest_key(std::string_view name) {
  constexpr std::string_view kNccl = "comm.nccl.";
  if (name.starts_with(kNccl)) {  // most leave out what all of them begin with
    const std::string whole = fmt::format("{}NCCL_{}", kNccl, name.substr(kNccl.size()));
    if (find_key(whole) != nullptr) return whole;
  }
  std::vector<std::string_view> same_table, all;
  const bool has_table = name.find('.') != std::string_view::npos;
  for (const Key& key : schema()) {
    all.push_back(key.name);
    if (has_table && table_of(key.name) == table_of(name)) same_table.push_back(key.name);
  }
  if (auto found = base::nearest(name, same_table)) return found;
  for (std::string_view key : all) {
    if (member_of(key) == member_of(name)) return std::string(key);
  }
  if (auto found = base::nearest(name, all)) return found;
  if (has_table) return std::nullopt;
  std::vector<std::string_view> members;
  for (std::string_view key : all) members.push_back(member_of(key));
  const auto member = base::nearest(name, members);
  if (!member) return std::nullopt;
  return std::string(all[std::ranges::find(members, *member) - members.begin()]);
}

/// What a key may be that is near none: those of a small table by name.
std::string keys_of_table(std::string_view table) {
  std::vector<std::string_view> keys;
  for (const Key& key : schema()) {
    if (table_of(key.name) == table) keys.push_back(member_of(key.name));
  }
  if (keys.empty() || keys.size() > kMaxListedKeys) return "see `hanji train --print-config`";
  return fmt::format("keys of [{}]: {}", table, fmt::join(keys, ", "));
}

/// The keys of a table that take `word`: of those with choices if there are any, else of all.
std::string keys_that_take(std::string_view table, std::string_view word) {
  std::vector<std::string_view> choices, keys;
  for (const Key& key : schema()) {
    if (table_of(key.name) != table || !parse_value(key, word).ok()) continue;
    keys.push_back(key.name);
    if (key.type == KeyType::kChoice) choices.push_back(key.name);
  }
  const auto& likely = choices.empty() ? keys : choices;
  if (likely.empty() || likely.size() > kMaxListedKeys) return keys_of_table(table);
  return fmt::format("did you mean {}?", fmt::join(likely, ", "));
}

std::string nearest_choice(const Key& key, std::string_view word) {
  if (key.type != KeyType::kChoice) return "";
  const auto meant = base::nearest(word, key.choices);
  return meant ? fmt::format("did you mean \"{}\"?", *meant) : "";
}

/// Collects values and mistakes from all sources, then compares the values with each other.
class Loader {
 public:
  Loader() = default;
  Loader(const Config& base, const std::string& base_source) {
    loaded_.config = base;
    loaded_.base_source = base_source;
  }
  void read_toml(std::string_view text, std::string_view file_name);
  void read_override(const Override& one);
  void read_mesh(std::string_view degrees);
  void set_defaults_of_family(bool as_published);
  void find_contradictions_between_good_keys();
  void look_at_data();
  void read_schedule();
  LoadedConfig take();
  void add(Origin origin, std::string key, std::string message, std::string suggestion = "");

 private:
  void unknown_key(const Origin& origin, const std::string& name);
  void unknown_table(const Origin& origin, const std::string& name);
  void accept(const Key& key, const Result<Value>& value, const Origin& origin,
              std::string_view word);
  Origin origin_of(std::string_view key) const;
  std::string origin_in_family(std::string_view name) const;
  void look_at_file(const std::string& key, const std::string& path, bool may_be_folder);
  void find_for_all_ranks(const std::string& key, std::string& path);

  LoadedConfig loaded_;
  std::set<std::string, std::less<>> mistaken_;
  std::set<std::string, std::less<>> of_family_;  ///< Keys with a default of the model's family.
};

void Loader::add(Origin origin, std::string key, std::string message, std::string suggestion) {
  mistaken_.insert(key);
  loaded_.mistakes.push_back(
      {std::move(origin), std::move(key), std::move(message), std::move(suggestion)});
}

void Loader::unknown_key(const Origin& origin, const std::string& name) {
  for (const Refusal& one : refused_keys()) {
    if (one.word == name)
      return add(origin, name, fmt::format("{} is rejected: {}", name, one.reason));
  }
  std::optional<std::string> meant;
  if (loaded_.mistakes.size() < kMaxSuggestions) meant = nearest_key(name);
  add(origin, name, "unknown key",
      meant ? fmt::format("did you mean {}?", *meant) : keys_of_table(table_of(name)));
}

void Loader::unknown_table(const Origin& origin, const std::string& name) {
  const auto meant = base::nearest(name, tables());
  add(origin, name, "unknown table",
      meant ? fmt::format("did you mean [{}]?", *meant)
            : fmt::format("tables: {}", fmt::join(tables(), ", ")));
}

void Loader::accept(const Key& key, const Result<Value>& value, const Origin& origin,
                    std::string_view word) {
  const std::string name(key.name);
  if (!value.ok()) {
    // A refusal carries its own way out.
    const bool refused = value.status().code() == Code::kUnsupported;
    add(origin, name, value.status().message(), refused ? "" : nearest_choice(key, word));
    return;
  }
  key.set(loaded_.config, *value);
  loaded_.origins[name] = origin;
  mistaken_.erase(name);
}

void Loader::read_toml(std::string_view text, std::string_view file_name) {
  TomlDocument document = read_toml_document(text, std::string(file_name));
  if (document.syntax_error) {
    const std::string& message = document.syntax_error->message;
    const bool at_value = message.find("expected value") != std::string::npos;
    add(document.syntax_error->origin, "", message,
        at_value                                     ? "text needs quotes, as in preset = \"char\""
        : message.find("utf-8") != std::string::npos ? "a configuration is a text in UTF-8"
                                                     : "");
  }
  for (const TomlEntry& entry : document.entries) {
    const Key* key = find_key(entry.key);
    if (entry.kind == TomlKind::kUnknownTable) {
      unknown_table(entry.origin, entry.key);
    } else if (entry.kind == TomlKind::kNotATable) {
      add(entry.origin, entry.key, fmt::format("{} must be a table", entry.key),
          fmt::format("write [{}]", entry.key));
    } else if (key == nullptr) {
      unknown_key(entry.origin, entry.key);
    } else {
      accept(*key, entry.value, entry.origin, entry.word);
    }
  }
}

void Loader::read_override(const Override& one) {
  const Origin origin{one.source};
  const size_t equals = one.assignment.find('=');
  const std::string name = one.assignment.substr(0, equals);
  if (name.empty()) return add(origin, "", "names no key", "write KEY=VALUE");
  if (equals == std::string::npos) {
    add(origin, name, "has no value", fmt::format("write {}=VALUE", name));
    return;
  }
  const std::string word = one.assignment.substr(equals + 1);
  const Key* key = find_key(name);
  if (key == nullptr && std::ranges::find(tables(), name) != tables().end()) {
    return add(origin, name, "is a table, not a key", keys_that_take(name, word));
  }
  if (key == nullptr) return unknown_key(origin, name);
  accept(*key, parse_value(*key, word), origin, word);
}

void Loader::read_mesh(std::string_view degrees) {
  const Origin origin{"--mesh"};
  for (const std::string_view one : base::split(degrees, ',')) {
    const size_t equals = one.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      add(origin, "", fmt::format("'{}' is not an axis with its degree", one),
          "write AXIS=N, as in --mesh dp=2,tp=2");
      continue;
    }
    const std::string key = fmt::format("mesh.{}", one.substr(0, equals));
    const auto set = loaded_.origins.find(key);
    if (set != loaded_.origins.end() && set->second.line == 0) {
      add(origin, key, fmt::format("{} is set twice, by {} too", key, set->second.source),
          "give it once");
      continue;
    }
    read_override({fmt::format("mesh.{}", one), origin.source});
  }
}

/// Not of a recorded run, which has all its values.
void Loader::set_defaults_of_family(bool as_published) {
  if (loaded_.base_source != LoadedConfig().base_source) return;
  std::vector<KeyDefault> defaults = defaults_of(loaded_.config.model);
  if (as_published) {
    const std::vector<KeyDefault> published = published_data(loaded_.config.model);
    defaults.insert(defaults.end(), published.begin(), published.end());
  }
  for (const KeyDefault& one : defaults) {
    // A file of images takes the place of generated ones, and says how many classes it has.
    const bool is_of_generated = one.key == "data.images" || one.key == "data.classes";
    if (is_of_generated && !loaded_.config.data.files.empty()) continue;
    if (loaded_.origins.contains(one.key)) continue;
    find_key(one.key)->set(loaded_.config, one.value);
    of_family_.emplace(one.key);
  }
}

Origin Loader::origin_of(std::string_view key) const {
  const auto found = loaded_.origins.find(key);
  return found == loaded_.origins.end() ? Origin{loaded_.base_source} : found->second;
}

/// For a message that names a key which nobody has set.
std::string Loader::origin_in_family(std::string_view name) const {
  const Key& key = *find_key(name);
  return fmt::format(" ({} = {} is the default of model.preset = {})", name,
                     format_value(key, key.get(loaded_.config)), loaded_.config.model.preset);
}

void Loader::find_contradictions_between_good_keys() {
  for (Contradiction& one : find_contradictions(loaded_.config)) {
    const auto wrong = [&](std::string_view key) { return mistaken_.contains(key); };
    if (std::ranges::any_of(one.keys, wrong)) continue;
    for (const std::string_view key : one.keys) {
      if (of_family_.contains(key)) one.message += origin_in_family(key);
    }
    const auto was_set = [&](std::string_view key) { return loaded_.origins.contains(key); };
    const auto culprit = std::ranges::find_if(one.keys, was_set);
    const std::string_view key = culprit == one.keys.end() ? one.keys.front() : *culprit;
    loaded_.mistakes.push_back({origin_of(key), std::string(key), std::move(one.message),
                                std::move(one.suggestion), std::move(one.keys)});
  }
}

void Loader::look_at_file(const std::string& key, const std::string& path, bool may_be_folder) {
  if (path.empty() || mistaken_.contains(key)) return;
  const auto file = base::MappedFile::open(path);
  if (file.ok()) {
    if (file->bytes().empty()) {
      add(origin_of(key), key, fmt::format("the file '{}' is empty", path), "name another file");
    }
    return;
  }
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (is_folder && may_be_folder) return;
  if (is_folder) {
    add(origin_of(key), key, fmt::format("'{}' is a folder, not a file", path), "name one file");
    return;
  }
  const bool is_missing = file.status().code() == Code::kNotFound;
  add(origin_of(key), key,
      is_missing ? fmt::format("cannot read '{}': there is no such file or folder", path)
                 : "cannot read " + file.status().message(),
      is_missing ? "check the path, which is relative to the current folder" : "");
}

/// Replaces what every process has for itself, such as /dev/stdin, by the file behind it, which ranks open too.
void Loader::find_for_all_ranks(const std::string& key, std::string& path) {
  if (path.empty() || mistaken_.contains(key)) return;
  const std::string found = base::path_for_all_processes(path).string();
  if (found.empty()) {
    add(origin_of(key), key,
        fmt::format(
            "'{}' is a stream that one process can read once, and every rank reads its data", path),
        "write it to a file first, and name that");
  }
  if (!found.empty()) path = found;
}

/// Tokens are looked for when they are opened: their path may be the prefix of two files.
void Loader::look_at_data() {
  DataConfig& data = loaded_.config.data;
  find_for_all_ranks("data.text", data.text);
  find_for_all_ranks("data.tokens", data.tokens);
  find_for_all_ranks("data.files", data.files);
  find_for_all_ranks("model.init", loaded_.config.model.init);
  look_at_file("data.text", data.text, true);
  look_at_file("data.files", data.files, false);
}

/// In place of a file's name, what it says. A recorded run has that already, in several lines.
void Loader::read_schedule() {
  const std::string key = "pipeline.schedule";
  PipelineConfig& pipeline = loaded_.config.pipeline;
  const bool is_name = pipeline.lines.find('\n') == std::string::npos;
  if (pipeline.schedule != PipelineKind::kUser || !is_name) return;
  const auto read = read_pipeline(pipeline.lines);
  if (read.ok()) {
    pipeline.lines = schedule::to_csv(*read);
    return;
  }
  for (const std::string_view one : base::split(read.status().message(), '\n')) {
    add(origin_of(key), key, std::string(one));
  }
}

LoadedConfig Loader::take() {
  sort_by_place(loaded_.mistakes);
  return std::move(loaded_);
}

}  // namespace

std::string Origin::to_string() const {
  return line > 0 ? fmt::format("{}:{}:{}", source, line, column) : source;
}

std::string ConfigMistake::to_string() const {
  std::string text = origin.to_string() + ": ";
  // Messages about values open with the key already.
  if (!key.empty() && message.find(key) == std::string::npos) text += key + ": ";
  text += message;
  if (!suggestion.empty()) text += "; " + suggestion;
  return text;
}

LoadedConfig load_config(const ConfigSources& sources) {
  Loader loader(sources.base, sources.base_source);
  if (sources.file) {
    const auto text = base::read_file(*sources.file, kMaxConfigBytes);
    if (text.ok()) {
      loader.read_toml(*text, sources.file->string());
    } else {
      loader.add({sources.file->string()}, "", text.status().message());
    }
  }
  for (const Override& one : sources.overrides) loader.read_override(one);
  if (sources.mesh) loader.read_mesh(*sources.mesh);
  loader.set_defaults_of_family(sources.as_published);
  loader.read_schedule();
  loader.find_contradictions_between_good_keys();
  loader.look_at_data();
  return loader.take();
}

LoadedConfig parse_config(std::string_view toml, std::string_view file_name,
                          std::span<const Override> overrides) {
  Loader loader;
  if (toml.size() > kMaxConfigBytes) {
    loader.add({std::string(file_name)}, "",
               fmt::format("{} bytes are more than a configuration has", toml.size()));
  } else {
    loader.read_toml(toml, file_name);
  }
  for (const Override& one : overrides) loader.read_override(one);
  loader.set_defaults_of_family(false);
  loader.find_contradictions_between_good_keys();
  return loader.take();
}

void sort_by_place(std::vector<ConfigMistake>& mistakes) {
  std::ranges::stable_sort(mistakes, {}, [](const ConfigMistake& mistake) {
    const bool in_file = mistake.origin.line > 0;
    return std::tuple(!in_file, in_file ? mistake.origin.line : 0,
                      in_file ? mistake.origin.column : 0);
  });
}

Status to_status(const std::vector<ConfigMistake>& mistakes) {
  if (mistakes.empty()) return {};
  std::string text;
  for (const ConfigMistake& mistake : mistakes) text += mistake.to_string() + "\n";
  text += fmt::format("{} mistake{} in the configuration; nothing was started", mistakes.size(),
                      mistakes.size() == 1 ? "" : "s");
  return base::invalid_argument(text);
}

}  // namespace hanji::plan
