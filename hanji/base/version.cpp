#include "hanji/base/version.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/file.h"

namespace hanji::base {
namespace {

constexpr size_t kIdBytes = 8;

/// The object (program or shared library) that holds an address, and the id its linker gave it.
struct Search {
  uintptr_t address;
  std::string id;
};

size_t aligned(size_t bytes) { return (bytes + 3) / 4 * 4; }

/// A note is a header, a name and a description, each padded to 4 bytes.
std::string build_id_in(std::span<const std::byte> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, notes.data(), sizeof(note));
    const size_t start = sizeof(note) + aligned(note.n_namesz);
    if (start + note.n_descsz > notes.size()) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= kIdBytes) {
      std::string id;
      for (const std::byte byte : notes.subspan(start, kIdBytes)) {
        id += fmt::format("{:02x}", static_cast<unsigned>(byte));
      }
      return id;
    }
    notes = notes.subspan(std::min(notes.size(), start + aligned(note.n_descsz)));
  }
  return {};
}

int visit_object(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool holds_address = false;
  std::string id;
  for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search.address - begin < segment.p_memsz) holds_address = true;
    if (segment.p_type == PT_NOTE && id.empty()) {
      id = build_id_in({reinterpret_cast<const std::byte*>(begin), segment.p_memsz});
    }
  }
  if (!holds_address) return 0;
  search.id = id;
  return 1;
}

std::string hash_of_program() {
  const auto path = executable_path();
  if (!path.ok()) return "unknown";
  const auto file = MappedFile::open(*path);
  return file.ok() ? fmt::format("{:016x}", xxh3((*file).bytes())) : "unknown";
}

}  // namespace

std::string_view version() { return HANJI_VERSION; }

std::string build_id() {
  Search search{reinterpret_cast<uintptr_t>(&build_id), {}};
  ::dl_iterate_phdr(visit_object, &search);
  return fmt::format("{}+{}", version(), search.id.empty() ? hash_of_program() : search.id);
}

}  // namespace hanji::base
