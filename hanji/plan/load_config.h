#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// The place of a value or of a mistake.
struct Origin {
  std::string source = "default";  ///< A file's name, "--set", a flag, "default".
  int line = 0;                    ///< From 1; 0: not in a file.
  int column = 0;
  std::string to_string() const;  ///< "run.toml:3:1", "--set".
};

/// One assignment from the command line.
struct Override {
  std::string assignment;        ///< "train.steps=60"
  std::string source = "--set";  ///< The option: "--set", "--ranks", ...
};

/// One mistake of a configuration.
struct ConfigMistake {
  Origin origin;
  std::string key;                          ///< "train.stpes"; empty: the file as a whole.
  std::string message;                      ///< The mistake and its reason, with both values.
  std::string suggestion;                   ///< A fix; empty: none is known.
  std::vector<std::string_view> keys = {};  ///< Of a contradiction all, with this one; else none.
  std::string to_string() const;
};

/// A configuration, the origin of each value, and all mistakes.
struct LoadedConfig {
  Config config;
  std::map<std::string, Origin, std::less<>> origins;  ///< Of the keys that are set.
  std::vector<ConfigMistake> mistakes;                 ///< In order of their places.
  std::string base_source = "default";                 ///< Of the keys that are not set.
};

struct ConfigSources {
  std::optional<std::filesystem::path> file = {};
  std::vector<Override> overrides = {};  ///< Override the file; later ones override earlier ones.
  std::optional<std::string> mesh =
      {};            ///< "dp=2,tp=2": overrides the file; no other override may.
  Config base = {};  ///< Values of keys that are not set.
  /// Whether keys that are not set describe the data that the preset was published with, not that of training.
  bool as_published = false;
  std::string base_source = "default";
};

/// Reads the file and the overrides, checks types, ranges and contradictions, and checks that
/// the named data exists. A mistaken value keeps the default and causes no further mistakes.
///
/// Cost    parses at most one file of 1 MiB; reads at most the first 64 KiB of the data.
/// Errors  all in LoadedConfig::mistakes; throws none.
LoadedConfig load_config(const ConfigSources& sources);

/// The same for a text in memory, without checking the data. Safe for any bytes.
LoadedConfig parse_config(std::string_view toml, std::string_view file_name,
                          std::span<const Override> overrides = {});

/// Sorts mistakes: those of the file first, in its order, then those of the command line in its order.
void sort_by_place(std::vector<ConfigMistake>& mistakes);

/// ok, or invalid_argument with one line per mistake and their number.
Status to_status(const std::vector<ConfigMistake>& mistakes);

/// The whole configuration as TOML, each value with its origin as a comment; reads back as the
/// same Config.
std::string print_config(const LoadedConfig& loaded);

/// Values that exclude each other.
struct Contradiction {
  std::vector<std::string_view> keys;  ///< All keys of the contradiction.
  std::string message;
  std::string suggestion;
};

/// `cut_axes`: those of layout::kAxisNames by which ranks may differ beside those of the family: on
/// them each rank has the whole model.
std::vector<Contradiction> find_contradictions(const Config& config,
                                               std::span<const std::string_view> cut_axes = {});

}  // namespace hanji::plan
