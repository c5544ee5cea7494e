#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "hanji/data/internal/beton_state.h"

namespace hanji::data {
namespace internal {
namespace {

/// Calls a user's function with mistakes, and counts them.
class BetonVerifier {
 public:
  using Report = std::function<void(const BetonMistake&)>;
  BetonVerifier(const BetonFile& file, BetonState& state, const Report& report)
      : file_(file), state_(state), report_(report) {}

  uint64_t run(const BetonVerifyOptions& options) {
    const BetonSections& s = state_.sections;
    if (state_.has_extension) check_padding();
    if (state_.has_extension && !check_pages(options)) return num_mistakes_;
    rows_.assign(s.num_samples * state_.fields.size(), false);
    for (uint64_t row = 0; row < s.num_allocations; ++row) check_row(row);
    check_overlaps();
    for (uint64_t sample = 0; sample < s.num_samples; ++sample) check_sample(sample);
    return num_mistakes_;
  }

 private:
  void add(BetonMistake mistake) {
    ++num_mistakes_;
    report_(mistake);
  }

  /// Before the first page, where no checksum is: hanji writes zeros there.
  void check_padding() {
    const BetonSections& s = state_.sections;
    const uint64_t begin = s.metadata_begin + s.num_samples * s.record_bytes;
    const auto padding = state_.bytes.subspan(begin, s.heap_begin - begin);
    const auto wrong =
        std::ranges::find_if(padding, [](std::byte one) { return one != std::byte{0}; });
    if (wrong == padding.end()) return;
    add({.message =
             fmt::format("byte {}, between the samples' records and the first page, is not 0",
                         begin + static_cast<uint64_t>(wrong - padding.begin()))});
  }

  /// Result: whether it went through all.
  bool check_pages(const BetonVerifyOptions& options) {
    const uint64_t total = state_.sections.num_pages;
    for (uint64_t page = 0; page < total; ++page) {
      if (page < options.first_page) continue;
      check_page(page);
      if (options.proceed && !options.proceed(page + 1, total)) return false;
    }
    return true;
  }

  void check_page(uint64_t page) {
    const uint64_t begin = state_.sections.heap_begin + page * state_.sections.page_bytes;
    if (file_.is_page(page, state_.bytes.subspan(begin, state_.sections.page_bytes))) return;
    damaged_pages_.insert(page);
    add({.page = page,
         .message = fmt::format("the checksum of its {} bytes at byte {} differs",
                                state_.sections.page_bytes, begin)});
  }

  void add_row(uint64_t row, std::string_view what) {
    const BetonAllocation one = state_.allocation(row);
    add({.page = file_.page_of(one.begin),
         .sample = one.sample,
         .message = fmt::format("row {} of the allocation table ({} bytes at byte {}) {}", row,
                                one.size, one.begin, what)});
  }

  /// Matches a row of the allocation table with a value of the sample that it names.
  void check_row(uint64_t row) {
    const BetonAllocation one = state_.allocation(row);
    if (one.sample >= state_.sections.num_samples) {
      return add_row(row, "names a sample that is not there");
    }
    for (size_t f = 0; f < state_.fields.size(); ++f) {
      if (!is_in_heap(state_.fields[f].type)) continue;
      const auto value = state_.locate(one.sample, f);
      if (!value.ok() || value->bytes.size() != one.size) continue;
      const auto begin = static_cast<uint64_t>(value->bytes.data() - state_.bytes.data());
      if (one.size != 0 && begin != one.begin) continue;
      rows_[one.sample * state_.fields.size() + f] = true;
      return;
    }
    add_row(row, "is none of the sample's values");
  }

  /// Only the table has the size of a JPEG, so that one too large is seen here.
  void check_overlaps() {
    std::vector<uint64_t> order(state_.sections.num_allocations);
    std::iota(order.begin(), order.end(), 0);
    const auto key = [this](uint64_t row) {
      const BetonAllocation one = state_.allocation(row);
      return std::pair(one.begin, one.size);
    };
    std::sort(order.begin(), order.end(),
              [&](uint64_t a, uint64_t b) { return std::pair(key(a), a) < std::pair(key(b), b); });
    for (size_t i = 1; i < order.size(); ++i) {
      const auto [begin, size] = key(order[i - 1]);
      if (key(order[i]).first - begin >= size) continue;
      add_row(order[i - 1], fmt::format("overlaps row {}", order[i]));
    }
  }

  void check_sample(uint64_t sample) {
    if (const Status status = state_.check_record(sample); !status.ok()) {
      return add({.sample = sample, .message = status.message()});
    }
    bool all_located = true;
    std::optional<uint64_t> page;
    for (size_t f = 0; f < state_.fields.size(); ++f) {
      const auto value = state_.locate(sample, f);
      all_located &= value.ok();
      if (value.ok() && !value->bytes.empty()) page = state_.page_of(value->bytes);
      check_value(sample, f, value);
    }
    const bool compare = all_located && page && damaged_pages_.contains(*page);
    const Status status = compare ? state_.check_sample_bytes(sample) : Status();
    if (!status.ok()) add({.page = page, .sample = sample, .message = status.message()});
  }

  void check_value(uint64_t sample, size_t f, const Result<BetonValue>& value) {
    const BetonField& field = state_.fields[f];
    const auto say = [&](std::string_view what, std::optional<uint64_t> page) {
      add({.page = page,
           .sample = sample,
           .message = fmt::format("field '{}': {}", field.name, what)});
    };
    if (!value.ok()) return say(value.status().message(), std::nullopt);
    if (!is_in_heap(field.type)) return;
    const auto bytes = value->bytes;
    const auto page = bytes.empty() ? std::nullopt : std::optional(state_.page_of(bytes));
    if (!rows_[sample * state_.fields.size() + f] && !bytes.empty()) {
      say("the allocation table has no row for it", page);
    }
    if (field.type == BetonType::kJson && (bytes.empty() || bytes.back() != std::byte{0})) {
      say("its JSON does not end with a zero byte", page);
    }
  }

  const BetonFile& file_;
  BetonState& state_;
  const Report& report_;
  std::vector<bool> rows_;  // whether a value has a row in the allocation table
  std::set<uint64_t> damaged_pages_;
  uint64_t num_mistakes_ = 0;
};

}  // namespace
}  // namespace internal

uint64_t BetonFile::verify(const std::function<void(const BetonMistake&)>& report,
                           const BetonVerifyOptions& options) const {
  return internal::BetonVerifier(*this, *state_, report).run(options);
}

}  // namespace hanji::data
