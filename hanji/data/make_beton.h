#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hanji/data/beton_file.h"

namespace hanji::data {

/// A page that make_beton() writes has at least so many.
constexpr uint64_t kMinPageBytes = uint64_t{8} << 20;

/// One sample of a recipe: a value per field. Their bytes lie in `bytes`, or live as long as the
/// recipe.
struct BetonSample {
  std::vector<BetonValue> values;
  std::vector<std::byte> bytes;
};

/// The samples that a file is to be made of, by number.
struct BetonRecipe {
  std::vector<BetonField> fields = {};
  uint64_t num_samples = 0;
  uint64_t max_sample_bytes = 0;  ///< No sample has more bytes in the heap; pages hold so many.
  std::string largest = {};       ///< Names that sample, and its largest field, for a message.
  std::string provenance = "{}";  ///< JSON
  std::vector<std::string> notes = {};  ///< What of the inputs was left out, a sentence each.
  uint64_t key = 0;  ///< Changes with the inputs: an interrupted file has kept it.

  /// Makes a sample; the memory of `out` is used again.
  /// Errors  kCorrupt and kUnsupported, naming the input, for what is wrong with this one alone.
  /// Thread  any number at once.
  std::function<Status(uint64_t sample, BetonSample& out)> read = {};
};

struct MakeBetonOptions {
  int num_threads = 1;
  /// Called after each sample with the number of those that are done; false interrupts.
  std::function<bool(uint64_t done, uint64_t total)> proceed = {};
};

struct MadeBeton {
  uint64_t num_samples = 0;  ///< Done.
  uint64_t num_resumed = 0;  ///< Of them, those of an interrupted call.
  bool is_whole = false;     ///< Else it was interrupted.
};

/// Writes the samples of a recipe to a .beton file, read by threads, in order.
///
/// Result  the same bytes for any number of threads and interruptions. Until the file is whole it is
///         beside `path`, where the next call with the same recipe continues it.
/// Cost    one page, and two blocks of about 1 MiB of samples per thread.
/// Errors  kInvalidArgument for a `path` that exists, a sample that no page holds, or an interrupted file of
///         another recipe;
///         kCorrupt naming up to ten samples that cannot be read, after all were tried: nothing is
///         left then. After any other error what was written stays.
Result<MadeBeton> make_beton(const BetonRecipe& recipe, const std::filesystem::path& path,
                             const MakeBetonOptions& options = {});

/// Changes with the path, the size and the time of the last change of a file.
uint64_t key_of_file(const std::filesystem::path& path);

}  // namespace hanji::data
