#include "hanji/data/token_file.h"

#include <fmt/format.h>

#include <memory>

#include "hanji/base/file.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using internal::load;

constexpr uint64_t kLlmCHeaderBytes = 256 * 4;
constexpr int32_t kLlmCMagic = 20240520;
constexpr int32_t kLlmC3Magic = 20240801;

struct LlmCKind {
  int32_t magic;
  int32_t version;
  TokenWidth width;
};
constexpr LlmCKind kLlmCKinds[] = {{kLlmCMagic, 1, TokenWidth::kUInt16},
                                   {kLlmC3Magic, 7, TokenWidth::kUInt32}};

bool has_llmc_magic(std::span<const std::byte> bytes) {
  if (bytes.size() < kLlmCHeaderBytes) return false;
  const auto magic = load<int32_t>(bytes, 0);
  return magic == kLlmCMagic || magic == kLlmC3Magic;
}

struct MegatronPaths {
  fs::path index;
  fs::path tokens;
};

MegatronPaths megatron_paths(const fs::path& path) {
  const bool named = path.extension() == ".idx" || path.extension() == ".bin";
  fs::path stem = path;
  if (named) stem.replace_extension();
  return {fs::path(stem) += ".idx", fs::path(stem) += ".bin"};
}

using SharedFile = std::shared_ptr<const base::MappedFile>;

Result<SharedFile> map_file(const fs::path& path) {
  HANJI_ASSIGN_OR_RETURN(base::MappedFile file, base::MappedFile::open(path));
  return std::make_shared<const base::MappedFile>(std::move(file));
}

TokenSource source_of(const SharedFile& file, const TokenLayout& layout) {
  const auto bytes = file->bytes().subspan(layout.begin, layout.num_tokens * size_of(layout.width));
  return TokenSource(file, bytes, layout.width);
}

/// A prefix of Megatron's with one file of the two names nothing by itself.
Status check_other_file(const fs::path& path) {
  std::error_code error;
  const auto [index_path, tokens_path] = megatron_paths(path);
  if (fs::exists(path, error) || !fs::exists(tokens_path, error)) return {};
  return base::not_found(fmt::format(
      "{}: no such file; {} is there without {}: name the former, or copy the index beside it",
      path.native(), tokens_path.native(), index_path.native()));
}

Result<TokenSource> open_megatron(const fs::path& path) {
  const auto [index_path, tokens_path] = megatron_paths(path);
  HANJI_ASSIGN_OR_RETURN(const SharedFile index, map_file(index_path));
  HANJI_ASSIGN_OR_RETURN(const SharedFile tokens, map_file(tokens_path));
  const auto layout = parse_megatron_index(index->bytes(), tokens->bytes().size());
  if (!layout.ok()) return layout.status().at(index_path.native());
  return source_of(tokens, *layout);
}

Result<TokenLayout> parse_nanogpt(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() % 2 != 0) {
    return base::corrupt(
        fmt::format("{} bytes are not a whole, non-zero number of 2-byte tokens; name its format "
                    "with data.format (hanji data make: --format), or copy the file again",
                    bytes.size()));
  }
  return TokenLayout{TokenWidth::kUInt16, bytes.size() / 2, 0};
}

}  // namespace

std::string_view name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::kAuto: return "auto";
    case TokenFormat::kNanoGpt: return "nanogpt";
    case TokenFormat::kLlmC: return "llmc";
    case TokenFormat::kMegatron: return "megatron";
  }
  return "unknown";
}

std::optional<TokenFormat> token_format(std::string_view name) {
  for (const auto format :
       {TokenFormat::kAuto, TokenFormat::kNanoGpt, TokenFormat::kLlmC, TokenFormat::kMegatron}) {
    if (name == name_of(format)) return format;
  }
  return std::nullopt;
}

Result<TokenLayout> parse_llmc(std::span<const std::byte> bytes) {
  if (!has_llmc_magic(bytes)) {
    return base::corrupt(fmt::format(
        "no llm.c header: magic is {} in {} bytes, not {} or {}; name its format with data.format "
        "(hanji data make: --format)",
        bytes.size() < 4 ? 0 : load<int32_t>(bytes, 0), bytes.size(), kLlmCMagic, kLlmC3Magic));
  }
  const auto magic = load<int32_t>(bytes, 0);
  const LlmCKind& kind = kLlmCKinds[magic == kLlmC3Magic];
  if (const auto version = load<int32_t>(bytes, 4); version != kind.version) {
    return base::corrupt(fmt::format("llm.c version is {}, not {} as magic {} asks; write it again",
                                     version, kind.version, magic));
  }
  const auto count = load<int32_t>(bytes, 8);
  const uint64_t held = (bytes.size() - kLlmCHeaderBytes) / size_of(kind.width);
  const bool whole = (bytes.size() - kLlmCHeaderBytes) % size_of(kind.width) == 0;
  if (count <= 0 || static_cast<uint64_t>(count) != held || !whole) {
    return base::corrupt(fmt::format(
        "the llm.c header promises {} tokens of {} bytes, {} bytes follow it; copy the file again",
        count, size_of(kind.width), bytes.size() - kLlmCHeaderBytes));
  }
  return TokenLayout{kind.width, held, kLlmCHeaderBytes};
}

Result<TokenSource> open_tokens(const fs::path& path, TokenFormat format) {
  std::error_code error;
  if (format == TokenFormat::kMegatron ||
      (format == TokenFormat::kAuto && fs::exists(megatron_paths(path).index, error))) {
    return open_megatron(path);
  }
  HANJI_RETURN_IF_ERROR(check_other_file(path));
  HANJI_ASSIGN_OR_RETURN(const SharedFile file, map_file(path));
  const bool llmc = format == TokenFormat::kLlmC ||
                    (format == TokenFormat::kAuto && has_llmc_magic(file->bytes()));
  const auto layout = llmc ? parse_llmc(file->bytes()) : parse_nanogpt(file->bytes());
  if (!layout.ok()) return layout.status().at(path.native());
  return source_of(file, *layout);
}

}  // namespace hanji::data
