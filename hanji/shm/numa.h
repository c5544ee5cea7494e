#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::shm {

class Segment;

/// A NUMA node and its logical CPUs.
struct BankCpus {
  int id = 0;
  std::vector<int> cpus;
  bool operator==(const BankCpus&) const = default;
};

/// The banks that /sys/devices/system/node below `root` lists, by id; one with all CPUs unknown where
/// it lists none.
std::vector<BankCpus> read_banks(const std::filesystem::path& root = "/");

/// The bank next to all CPUs of a rank; -1 where they lie at several, or none is known.
int bank_of(std::span<const BankCpus> banks, std::span<const int> cpus);

/// Where pages of each rank should lie, by index; -1: wherever their owner touches them first.
struct PagePlacement {
  std::vector<int> heap;  ///< Next to the owner: it computes there, peers read slices.
  std::vector<int>
      staging;  ///< Next to who reads: the bank of most other ranks, of equals the lowest.
  bool operator==(const PagePlacement&) const = default;
};

/// Decides for ranks at these banks. On a single bank, or where one is not known, nothing is placed.
PagePlacement place_pages(std::span<const int> bank_of_rank);

/// Asks the kernel for pages of [offset, offset + bytes) of the segment, not yet touched, at a bank.
/// Result  true if it will; false for bank -1, and where the kernel has no memory policies: pages
///         then come where they are touched first, which is slower and not wrong.
bool prefer_bank(const Segment& segment, size_t offset, size_t bytes, int bank);

/// Places what `rank` owns in a group of `members`: its staging. Ranks that have not joined yet
/// count as unknown.
/// Result  the bank; -1: nothing was placed.
int place_staging(const Segment& segment, int group, std::span<const int> members, int rank);

/// "heap at its owner's NUMA node, staging at its readers'", or why nothing is placed.
std::string describe_placement(std::span<const BankCpus> banks);

}  // namespace hanji::shm
