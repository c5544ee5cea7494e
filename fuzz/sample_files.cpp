// What files of samples are made of: tar archives, tables and arrays. Whatever is found lies in the file.
#include "fuzz/input.h"
#include "hanji/data/internal/csv_table.h"
#include "hanji/data/internal/npy_header.h"
#include "hanji/data/internal/tar_index.h"

namespace {

void read_tar(std::span<const std::byte> input) {
  const auto members = hanji::data::internal::index_tar(input);
  if (!members.ok()) return;
  for (const auto& one : *members) {
    hanji::fuzz::require(one.begin <= input.size() && one.size <= input.size() - one.begin,
                         "a member lies in the archive");
    hanji::fuzz::require(!one.name.empty() && one.name.front() != '/', "a name is relative");
  }
}

void read_table(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto table = hanji::data::internal::CsvTable::parse(text);
  if (!table.ok()) return;
  for (uint64_t row = 0; row < table->num_rows(); ++row) {
    hanji::fuzz::require(table->row(row).size() == table->columns().size(),
                         "a row has a value for each column");
  }
}

void read_array(std::span<const std::byte> input) {
  const auto header = hanji::data::internal::parse_npy(input);
  if (!header.ok()) return;
  uint64_t bytes = header->item_bytes;
  for (const uint64_t size : header->shape) bytes *= size;
  hanji::fuzz::require(header->begin + bytes == input.size(),
                       "the elements are the rest of the file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = hanji::fuzz::bytes_of(data, size);
  read_tar(input);
  read_table(input);
  read_array(input);
  return 0;
}
