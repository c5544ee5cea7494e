#include "hanji/base/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "hanji/base/file.h"

namespace hanji::base {
namespace {

using Bytes = std::span<const std::byte>;

/// `count` records at `offset`, copied out; empty if they do not lie inside.
template <class T>
std::vector<T> records(Bytes bytes, uint64_t offset, uint64_t count) {
  if (offset > bytes.size() || count > (bytes.size() - offset) / sizeof(T)) return {};
  std::vector<T> found(count);
  if (count != 0) std::memcpy(found.data(), bytes.data() + offset, count * sizeof(T));
  return found;
}

/// The functions of an ELF file of this machine's kind.
class Functions {
 public:
  static std::optional<Functions> read(const std::filesystem::path& path) {
    auto file = MappedFile::open(path);
    if (!file.ok()) return {};
    Functions functions(*std::move(file));
    const Bytes bytes = functions.file_.bytes();
    const auto header = records<Elf64_Ehdr>(bytes, 0, 1);
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        header[0].e_ident[EI_CLASS] != ELFCLASS64 || header[0].e_shentsize != sizeof(Elf64_Shdr)) {
      return {};
    }
    if (header[0].e_type == ET_EXEC) functions.find_start(header[0]);
    const auto sections = records<Elf64_Shdr>(bytes, header[0].e_shoff, header[0].e_shnum);
    for (const Elf64_Shdr& section : sections) {
      const bool symbols = section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM;
      if (symbols && section.sh_link < sections.size()) {
        functions.take(section, sections[section.sh_link]);
      }
    }
    return functions;
  }

  /// The function around `offset` behind the module's start, and how far inside it that is.
  std::optional<std::string> at(uint64_t offset) const {
    const uint64_t address = offset + start_;
    for (const Table& table : tables_) {
      for (const Elf64_Sym& symbol : table.symbols) {
        const bool function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
        if (!function || address - symbol.st_value >= symbol.st_size) continue;
        return fmt::format("{}+{:#x}", demangle(table.name(symbol)), address - symbol.st_value);
      }
    }
    return {};
  }

 private:
  struct Table {
    std::vector<Elf64_Sym> symbols;
    std::vector<char> names;

    std::string name(const Elf64_Sym& symbol) const {
      if (symbol.st_name >= names.size()) return "?";
      const char* start = names.data() + symbol.st_name;
      return {start, strnlen(start, names.size() - symbol.st_name)};
    }
  };

  explicit Functions(MappedFile file) : file_(std::move(file)) {}

  static std::string demangle(const std::string& name) {
    int failed = 0;
    char* words = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed);
    std::string result = failed == 0 && words != nullptr ? words : name;
    std::free(words);
    return result;
  }

  /// Where a program that is not relocated starts.
  void find_start(const Elf64_Ehdr& header) {
    for (const auto& part : records<Elf64_Phdr>(file_.bytes(), header.e_phoff, header.e_phnum)) {
      if (part.p_type != PT_LOAD) continue;
      start_ = part.p_vaddr;  // The first is the lowest.
      return;
    }
  }

  void take(const Elf64_Shdr& symbols, const Elf64_Shdr& names) {
    const uint64_t count = symbols.sh_size / sizeof(Elf64_Sym);
    tables_.push_back({records<Elf64_Sym>(file_.bytes(), symbols.sh_offset, count),
                       records<char>(file_.bytes(), names.sh_offset, names.sh_size)});
  }

  MappedFile file_;
  uint64_t start_ = 0;
  std::vector<Table> tables_;
};

/// "  #0 MODULE(NAME) [+0xOFFSET]" taken apart.
struct Frame {
  std::string_view number, module;
  uint64_t offset = 0;
};

std::optional<Frame> parse(std::string_view line) {
  const size_t number = line.find('#');
  const size_t space = line.find(' ', number);
  const size_t offset = line.rfind("[+0x");
  const size_t open = line.find('(', space);
  if (number == line.npos || space == line.npos || offset == line.npos || open == line.npos) {
    return {};
  }
  Frame frame{line.substr(number, space - number), line.substr(space + 1, open - space - 1)};
  const char* digits = line.data() + offset + 4;
  const auto [end, error] = std::from_chars(digits, line.data() + line.size(), frame.offset, 16);
  if (error != std::errc() || end == digits) return {};
  return frame;
}

class Symboliser {
 public:
  std::string line(std::string_view line) {
    const auto frame = parse(line);
    if (!frame) return std::string(line);
    // A caller's address lies behind its call, which may be its last instruction.
    const bool called = frame->number != "#0" && frame->offset != 0;
    const auto& functions = functions_of(std::string(frame->module));
    const auto name = functions ? functions->at(frame->offset - (called ? 1 : 0)) : std::nullopt;
    if (!name) return std::string(line);
    const std::string_view file = frame->module.substr(frame->module.rfind('/') + 1);
    return fmt::format("  {} {} in {}", frame->number, *name, file);
  }

 private:
  const std::optional<Functions>& functions_of(const std::string& module) {
    const auto known = modules_.find(module);
    if (known != modules_.end()) return known->second;
    return modules_.emplace(module, Functions::read(module)).first->second;
  }

  std::map<std::string, std::optional<Functions>> modules_;
};

}  // namespace

std::string symbolise(std::string_view stack) {
  Symboliser symboliser;
  std::string text;
  while (!stack.empty()) {
    const size_t end = std::min(stack.find('\n'), stack.size());
    text += symboliser.line(stack.substr(0, end)) + "\n";
    stack.remove_prefix(std::min(end + 1, stack.size()));
  }
  return text;
}

}  // namespace hanji::base
