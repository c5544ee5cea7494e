#include "hanji/shm/numa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>

#include "hanji/base/file.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {
namespace {

constexpr int kPreferred = 1;  // MPOL_PREFERRED: elsewhere if the bank is full, never a failure
constexpr int kMaxBanks = 1024;
constexpr size_t kPage = 4096;

int number_of(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// "0-3,8"
std::vector<int> parse_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    const size_t dash = std::min(range.find('-'), range.size());
    const int first = number_of(range.substr(0, dash));
    const int last = dash == range.size() ? first : number_of(range.substr(dash + 1));
    for (int i = first; first >= 0 && i <= last; ++i) numbers.push_back(i);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

std::vector<int> cpus_of(const Segment& segment, int rank) {
  std::vector<int> cpus;
  const auto& words = segment.rank_state(rank).processors;
  for (size_t i = 0; i < words.size() * 64; ++i) {
    if ((words[i / 64].load() >> (i % 64) & 1) != 0) cpus.push_back(static_cast<int>(i));
  }
  return cpus;
}

}  // namespace

std::vector<BankCpus> read_banks(const std::filesystem::path& root) {
  const auto folder = root / "sys/devices/system/node";
  std::vector<BankCpus> banks;
  const auto online = base::read_file(folder / "online", 4096);
  for (const int id : parse_list(online.ok() ? *online : "")) {
    const auto list = base::read_file(folder / ("node" + std::to_string(id)) / "cpulist", 1 << 16);
    if (list.ok()) banks.push_back({id, parse_list(*list)});
  }
  if (banks.empty()) banks.push_back({});
  return banks;
}

int bank_of(std::span<const BankCpus> banks, std::span<const int> cpus) {
  int found = -1;
  for (const int cpu : cpus) {
    const auto bank = std::ranges::find_if(banks, [&](const BankCpus& one) {
      return std::ranges::find(one.cpus, cpu) != one.cpus.end();
    });
    if (bank == banks.end() || (found >= 0 && bank->id != found)) return -1;
    found = bank->id;
  }
  return found;
}

PagePlacement place_pages(std::span<const int> bank_of_rank) {
  const size_t ranks = bank_of_rank.size();
  PagePlacement placement{std::vector<int>(ranks, -1), std::vector<int>(ranks, -1)};
  const bool all_known = std::ranges::none_of(bank_of_rank, [](int bank) { return bank < 0; });
  const bool one_bank =
      std::ranges::adjacent_find(bank_of_rank, std::ranges::not_equal_to()) == bank_of_rank.end();
  if (!all_known || one_bank) return placement;
  for (size_t owner = 0; owner < ranks; ++owner) {
    placement.heap[owner] = bank_of_rank[owner];
    std::map<int, int> readers;
    for (size_t other = 0; other < ranks; ++other) {
      if (other != owner) ++readers[bank_of_rank[other]];
    }
    placement.staging[owner] =
        std::ranges::max_element(readers, {}, [](const auto& one) { return one.second; })->first;
  }
  return placement;
}

bool prefer_bank(const Segment& segment, size_t offset, size_t bytes, int bank) {
  if (bank < 0 || bank >= kMaxBanks) return false;
  std::array<unsigned long, kMaxBanks / (8 * sizeof(unsigned long))> mask{};
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  mask[static_cast<size_t>(bank) / kBits] |= 1ul << (static_cast<size_t>(bank) % kBits);
  std::byte* begin = segment.data() + offset / kPage * kPage;
  const size_t length = bytes + offset % kPage;
  return ::syscall(SYS_mbind, begin, length, kPreferred, mask.data(), kMaxBanks + 1, 0) == 0;
}

int place_staging(const Segment& segment, int group, std::span<const int> members, int rank) {
  const std::vector<BankCpus> banks = read_banks();
  if (banks.size() < 2) return -1;
  std::vector<int> bank_of_member;
  for (const int member : members) {
    bank_of_member.push_back(bank_of(banks, cpus_of(segment, member)));
  }
  const auto me = std::ranges::find(members, rank) - members.begin();
  const int bank = place_pages(bank_of_member).staging[static_cast<size_t>(me)];
  const bool placed =
      prefer_bank(segment, segment.staging_offset(group, rank), internal::kStagingPerRank, bank);
  return placed ? bank : -1;
}

std::string describe_placement(std::span<const BankCpus> banks) {
  if (banks.size() < 2) return "one NUMA node, nothing to place";
  return std::to_string(banks.size()) +
         " NUMA nodes: heap pages at their owner's, staging at its readers'";
}

}  // namespace hanji::shm
