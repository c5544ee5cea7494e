#include "hanji/launch/internal/announcement.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace hanji::launch {
namespace {

struct Field {
  std::string_view name;
  int Announcement::*value;
};

constexpr std::array kFields = {
    Field{"rank", &Announcement::rank},       Field{"size", &Announcement::size},
    Field{"segment", &Announcement::segment}, Field{"control", &Announcement::control},
    Field{"plan", &Announcement::plan},       Field{"same_program", &Announcement::same_program},
};

/// Only where there are several hosts.
constexpr std::array kFieldsOfHosts = {
    Field{"hosts", &Announcement::hosts},           Field{"first_rank", &Announcement::first_rank},
    Field{"world_size", &Announcement::world_size}, Field{"node", &Announcement::node},
    Field{"num_nodes", &Announcement::num_nodes},
};

/// The integer after "name=" at the front of `text`, which is cut off with its comma.
std::optional<int> take(std::string_view name, std::string_view& text) {
  if (!text.starts_with(name) || text.substr(name.size(), 1) != "=") return {};
  const size_t comma = text.find(',');
  const auto value = parse_integer(text.substr(0, comma).substr(name.size() + 1));
  text.remove_prefix(comma == text.npos ? text.size() : comma + 1);
  return value;
}

bool in_its_world(const Announcement& announcement) {
  const bool here = announcement.first_rank >= 0 &&
                    announcement.first_rank <= announcement.world_size - announcement.size;
  return here && announcement.node >= 0 && announcement.node < announcement.num_nodes;
}

}  // namespace

std::string to_text(const Announcement& announcement) {
  std::string text;
  const auto put = [&](const Field& field) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, announcement.*field.value);
  };
  for (const Field& field : kFields) put(field);
  if (announcement.hosts < 0) return text;
  for (const Field& field : kFieldsOfHosts) put(field);
  return text;
}

Result<Announcement> parse_announcement(std::string_view text) {
  const Status bad = base::invalid_argument(fmt::format(
      "HANJI_ENDPOINTS='{}' is not what hanji run writes; unset it to run alone", text));
  Announcement announcement;
  const auto take_all = [&](const auto& fields) {
    for (const Field& field : fields) {
      const auto value = take(field.name, text);
      if (!value) return false;
      announcement.*field.value = *value;
    }
    return true;
  };
  if (!take_all(kFields)) return bad;
  announcement.world_size = announcement.size;
  if (!text.empty() && !(take_all(kFieldsOfHosts) && announcement.hosts >= 0)) return bad;
  const bool sane = announcement.rank >= 0 && announcement.rank < announcement.size &&
                    announcement.segment >= 0 && announcement.control >= 0 &&
                    announcement.plan >= -1 && (announcement.same_program & ~1) == 0 &&
                    in_its_world(announcement) && text.empty();
  if (!sane) return bad;
  return announcement;
}

std::optional<int> parse_integer(std::string_view text) {
  int value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || error != std::errc() || end != last) return {};
  return value;
}

}  // namespace hanji::launch
