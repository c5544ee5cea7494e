#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace hanji::train {

struct VerifyRankOptions {
  std::filesystem::path folder;
  std::optional<int64_t> keep_step = std::nullopt;
  int keep_rank = 0;
};

/// All that one rank of `hanji verify` does: meets the others, follows the inherited plan, and
/// leaves FOLDER/rank.N.json. `keep_rank` leaves its tensors after `keep_step` steps, too, in
/// FOLDER/rank.N.safetensors.
/// Errors  throws what the job throws; all ranks are told before.
void run_verify_rank(const VerifyRankOptions& options);

/// FOLDER/rank.N with an extension.
std::filesystem::path rank_file(const std::filesystem::path& folder, int rank,
                                std::string_view extension);

}  // namespace hanji::train
