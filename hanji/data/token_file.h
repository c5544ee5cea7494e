#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/data/token_source.h"

namespace hanji::data {

/// Where a token file comes from. kAuto looks: a Megatron index beside the file or its name, then
/// the magic of llm.c, else nanoGPT's headerless form.
enum class TokenFormat : uint8_t { kAuto, kNanoGpt, kLlmC, kMegatron };

/// "auto", "nanogpt", "llmc", "megatron".
std::string_view name_of(TokenFormat format);
std::optional<TokenFormat> token_format(std::string_view name);

/// Maps a file of token ids; nothing but its header is read before tokens are asked for.
///
/// nanoGPT   u16 after u16, no header.
/// llm.c     256 x i32 (magic 20240520 version 1: u16 tokens; magic 20240801 version 7: u32
///           tokens; then the count), then the tokens.
/// Megatron  PREFIX.idx beside PREFIX.bin; `path` may be either of them or PREFIX.
/// Errors    kNotFound; kCorrupt, naming file, offset and both values, when magic, version, counts
///           and sizes do not agree exactly; kUnsupported for element types that are no token ids.
/// Source    llm.c dataloader.h; Megatron-LM indexed_dataset.py; nanoGPT train.py.
Result<TokenSource> open_tokens(const std::filesystem::path& path,
                                TokenFormat format = TokenFormat::kAuto);

/// What the header of a token file promises about the bytes behind it.
struct TokenLayout {
  TokenWidth width = TokenWidth::kUInt16;
  uint64_t num_tokens = 0;
  uint64_t begin = 0;  ///< Where the first token lies.
};

/// Checks the header of llm.c in `bytes`, a whole file.
Result<TokenLayout> parse_llmc(std::span<const std::byte> bytes);

/// Checks a whole Megatron index: one run of sequences, back to back, in a file of `bin_bytes`.
/// Cost    one pass over the index, no memory.
Result<TokenLayout> parse_megatron_index(std::span<const std::byte> index, uint64_t bin_bytes);

}  // namespace hanji::data
