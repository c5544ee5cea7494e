#include "hanji/data/internal/beton_journal.h"

#include <array>
#include <cstring>
#include <optional>

#include "hanji/base/checksum.h"
#include "hanji/data/internal/little_endian.h"

namespace hanji::data::internal {
namespace {

namespace fs = std::filesystem;

constexpr char kJournalMagic[9] = "hanjimk1";
constexpr uint64_t kJournalHead = 16;

/// The numbers before the bytes of a page, the first of which is the checksum of all behind it.
struct PageHead {
  uint64_t checksum;
  uint64_t page_checksum;
  uint64_t num_samples;
  std::array<uint64_t, 3> sizes;
};
static_assert(sizeof(PageHead) == 48);

constexpr size_t kBehindChecksum = offsetof(PageHead, page_checksum);

uint64_t checksum_of(const PageHead& head, const JournalPage& page) {
  base::Xxh3 sum;
  sum.update(std::as_bytes(std::span(&head, 1)).subspan(kBehindChecksum));
  for (const auto part : {page.records, page.rows, page.table}) sum.update(part);
  return sum.digest();
}

/// The page at the beginning of `bytes`, and how many of them it has.
std::optional<std::pair<JournalPage, size_t>> parse_page(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(PageHead)) return std::nullopt;
  const auto head = load<PageHead>(bytes, 0);
  JournalPage page{.checksum = head.page_checksum, .num_samples = head.num_samples};
  size_t at = sizeof(PageHead);
  std::array<std::span<const std::byte>*, 3> parts = {&page.records, &page.rows, &page.table};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (head.sizes[i] > bytes.size() - at) return std::nullopt;
    *parts[i] = bytes.subspan(at, head.sizes[i]);
    at += head.sizes[i];
  }
  if (checksum_of(head, page) != head.checksum) return std::nullopt;
  return std::pair(page, at);
}

/// Bytes of the journal to go on from; 0: from none.
Result<uint64_t> kept_bytes(const fs::path& path, uint64_t key,
                            const std::function<bool(const JournalPage&)>& keep) {
  std::error_code error;
  if (!fs::exists(path, error)) return uint64_t{0};
  HANJI_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() < kJournalHead || std::memcmp(bytes.data(), kJournalMagic, 8) != 0) {
    return uint64_t{0};
  }
  if (load<uint64_t>(bytes, 8) != key) {
    return base::invalid_argument(
        path.native() +
        ": an interrupted file of other samples or options; finish it by its own command, or "
        "remove this file");
  }
  uint64_t at = kJournalHead;
  while (const auto page = parse_page(bytes.subspan(at))) {
    if (!keep(page->first)) break;
    at += page->second;
  }
  return at;
}

}  // namespace

Result<BetonJournal> BetonJournal::open(const fs::path& path, uint64_t key,
                                        const std::function<bool(const JournalPage&)>& keep) {
  HANJI_ASSIGN_OR_RETURN(const uint64_t kept, kept_bytes(path, key, keep));
  std::error_code error;
  if (kept > 0) fs::resize_file(path, kept, error);
  if (error) return base::from_errno("truncate " + path.native(), error.value());
  using Mode = base::OutputFile::Mode;
  HANJI_ASSIGN_OR_RETURN(auto file,
                         base::OutputFile::open(path, kept > 0 ? Mode::kAppend : Mode::kTruncate));
  BetonJournal journal(path, std::move(file));
  if (kept > 0) return journal;
  HANJI_RETURN_IF_ERROR(journal.file_.append(std::string_view(kJournalMagic, 8)));
  HANJI_RETURN_IF_ERROR(journal.file_.append(std::as_bytes(std::span(&key, 1))));
  HANJI_RETURN_IF_ERROR(journal.file_.flush());
  return journal;
}

Status BetonJournal::append(const JournalPage& page) {
  PageHead head{.checksum = 0,
                .page_checksum = page.checksum,
                .num_samples = page.num_samples,
                .sizes = {page.records.size(), page.rows.size(), page.table.size()}};
  head.checksum = checksum_of(head, page);
  HANJI_RETURN_IF_ERROR(file_.append(std::as_bytes(std::span(&head, 1))));
  for (const auto part : {page.records, page.rows, page.table}) {
    HANJI_RETURN_IF_ERROR(file_.append(part));
  }
  return file_.flush();
}

Status BetonJournal::remove() {
  HANJI_RETURN_IF_ERROR(file_.close());
  return base::remove_tree(path_);
}

}  // namespace hanji::data::internal
