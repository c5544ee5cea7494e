#include "hanji/checkpoint/internal/header_scanner.h"

#include <fmt/format.h>

#include <charconv>

#include "hanji/base/text.h"

namespace hanji::checkpoint::internal {
namespace {

void append_utf8(std::string& out, uint32_t value) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) return put(value);
  if (value < 0x800) return put(0xC0 | value >> 6), put(0x80 | (value & 0x3F));
  if (value < 0x10000) {
    put(0xE0 | value >> 12);
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
  }
  put(0x80 | (value >> 6 & 0x3F));
  put(0x80 | (value & 0x3F));
}

}  // namespace

Status HeaderScanner::error(std::string_view what) const {
  return base::corrupt(fmt::format("header byte {}: {}", at_, what));
}

void HeaderScanner::skip_space() {
  const size_t next = text_.find_first_not_of(" \t\r\n", at_);
  at_ = next == text_.npos ? text_.size() : next;
}

bool HeaderScanner::try_take(char wanted) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

Status HeaderScanner::take(char expected) {
  if (try_take(expected)) return {};
  return error(fmt::format("'{}' must stand here", expected));
}

Status HeaderScanner::take_end() {
  skip_space();
  return at_ == text_.size() ? Status() : error("nothing may follow the object");
}

Result<int64_t> HeaderScanner::take_integer() {
  skip_space();
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), value);
  const bool negative = begin != end && *begin == '-';
  if (problem == std::errc::result_out_of_range) return error("a number beyond 2^63 - 1");
  if (problem != std::errc() || negative) return error("a number without sign must stand here");
  if (end - begin > 1 && *begin == '0') return error("a number may not begin with 0");
  at_ += static_cast<size_t>(end - begin);
  return value;
}

Result<std::string> HeaderScanner::take_string() {
  HANJI_RETURN_IF_ERROR(take('"'));
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"') HANJI_RETURN_IF_ERROR(take_character(out));
  if (at_ == text_.size()) return error("the string does not end");
  ++at_;
  return out;
}

Status HeaderScanner::take_character(std::string& out) {
  if (text_[at_] == '\\') return take_escape(out);
  if (static_cast<unsigned char>(text_[at_]) < 0x20) return error("a control character");
  const size_t length = base::utf8_length(text_.substr(at_));
  if (length == 0) return error("not UTF-8");
  out += text_.substr(at_, length);
  at_ += length;
  return {};
}

Status HeaderScanner::take_escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  ++at_;
  if (at_ == text_.size()) return error("the string does not end");
  const char letter = text_[at_++];
  if (const size_t found = kLetters.find(letter); found != kLetters.npos) {
    out += kMeanings[found];
    return {};
  }
  if (letter != 'u') return error("no such escape");
  HANJI_ASSIGN_OR_RETURN(uint32_t value, take_hex());
  if (value >= 0xDC00 && value <= 0xDFFF) return error("half a surrogate pair");
  if (value >= 0xD800 && value <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u") return error("half a surrogate pair");
    at_ += 2;
    HANJI_ASSIGN_OR_RETURN(const uint32_t low, take_hex());
    if (low < 0xDC00 || low > 0xDFFF) return error("half a surrogate pair");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, value);
  return {};
}

Result<uint32_t> HeaderScanner::take_hex() {
  uint32_t value = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const char* last = digits.data() + digits.size();
  const auto [end, problem] = std::from_chars(digits.data(), last, value, 16);
  if (digits.size() < 4 || problem != std::errc() || end != last) {
    return error("four hexadecimal digits must stand here");
  }
  at_ += 4;
  return value;
}

}  // namespace hanji::checkpoint::internal
