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

/// Where a value or a mistake stands.
struct Origin {
  std::string source = "default";  ///< A file's name, "--set", a flag, "default".
  int line = 0;                    ///< From 1; 0: not in a file.
  int column = 0;
  std::string to_string() const;  ///< "run.toml:3:1", "--set".
};

/// One assignment from the command line.
struct Override {
  std::string assignment;        ///< "train.steps=60"
  std::string source = "--set";  ///< What the user typed: "--set", "--ranks", ...
};

/// One thing that is wrong with a configuration.
struct ConfigMistake {
  Origin origin;
  std::string key;         ///< "train.stpes"; empty: the file as a whole.
  std::string message;     ///< What is wrong and why, with both values.
  std::string suggestion;  ///< One way out; empty: none is known.
  std::string to_string() const;
};

/// A configuration, whence each value came, and everything that is wrong with it.
struct LoadedConfig {
  Config config;
  std::map<std::string, Origin, std::less<>> origins;  ///< Of the keys that somebody set.
  std::vector<ConfigMistake> mistakes;                 ///< In order of their places.
  std::string base_source = "default";                 ///< Of the keys that nobody set.
};

struct ConfigSources {
  std::optional<std::filesystem::path> file = {};
  std::vector<Override> overrides =
      {};            ///< Stronger than the file; a later one than an earlier one.
  Config base = {};  ///< What holds where nobody sets anything.
  std::string base_source = "default";
};

/// Reads the file and the overrides, checks types, ranges and contradictions, and looks whether
/// the named data is there. Mistaken values leave the default and raise no further mistakes.
///
/// Cost    at most one file of 1 MiB is parsed; no more is read of the data than its first 64 KiB.
/// Errors  all of them in LoadedConfig::mistakes, none is thrown.
LoadedConfig load_config(const ConfigSources& sources);

/// The same for a text in memory, without looking at the data. Safe for any bytes.
LoadedConfig parse_config(std::string_view toml, std::string_view file_name,
                          std::span<const Override> overrides = {});

/// File first, in its order; then the command line in its own.
void sort_by_place(std::vector<ConfigMistake>& mistakes);

/// ok, or invalid_argument with one line per mistake and their number.
Status to_status(const std::vector<ConfigMistake>& mistakes);

/// The whole configuration as TOML, each value with its origin as a comment; reads back as the
/// same Config.
std::string print_config(const LoadedConfig& loaded);

/// Values that exclude each other.
struct Contradiction {
  std::vector<std::string_view> keys;  ///< All that take part.
  std::string message;
  std::string suggestion;
};

/// `cut_axes`: those of layout::kAxisNames, beside dp and fsdp, by which the model can be cut.
std::vector<Contradiction> find_contradictions(const Config& config,
                                               std::span<const std::string_view> cut_axes = {});

}  // namespace hanji::plan
