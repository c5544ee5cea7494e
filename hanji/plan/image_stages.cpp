#include "hanji/plan/image_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hanji/base/text.h"

namespace hanji::plan {
namespace {

constexpr size_t kMaxShown = 40;

/// A value of a stage: where it is stored and its range.
struct StageValue {
  std::string_view name;
  std::span<double> numbers;
  double min = 0;
  double max = 1;
  bool is_whole = false;
};

/// What the text is parsed into: every number as a double.
struct StageNumbers {
  RandomResizedCrop random;
  CenterCrop center;
  double flip = 0.5;
  double vertical_flip = 0.5;
  ColourAmounts colour = {
      .brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1, .gray_probability = 0.2};
  double translate = 4;
  double cutout = 8;
  // Of ImageNet.
  std::array<double, 3> mean = {0.485, 0.456, 0.406};
  std::array<double, 3> deviation = {0.229, 0.224, 0.225};
  Mixing mixup = {.alpha = 0.2, .probability = 1};
  Mixing cutmix = {.alpha = 1, .probability = 1};
};

struct StageKind {
  std::string_view name;
  int place = 0;  ///< Crops share one.
  std::vector<StageValue> values;
};

std::span<double> one(double& number) { return {&number, 1}; }

std::vector<StageValue> mixing_values(Mixing& mixing) {
  return {{"alpha", one(mixing.alpha), 0.01, 4}, {"probability", one(mixing.probability), 0, 1}};
}

std::vector<StageKind> stage_kinds(StageNumbers& n) {
  return {{"random_resized_crop",
           0,
           {{"min_area", one(n.random.min_area), 1e-4, 1},
            {"max_area", one(n.random.max_area), 1e-4, 1},
            {"min_ratio", one(n.random.min_ratio), 0.01, 100},
            {"max_ratio", one(n.random.max_ratio), 0.01, 100}}},
          {"center_crop", 0, {{"ratio", one(n.center.ratio), 0.01, 1}}},
          {"flip", 1, {{"probability", one(n.flip), 0, 1}}},
          {"vertical_flip", 2, {{"probability", one(n.vertical_flip), 0, 1}}},
          {"brightness", 3, {{"amount", one(n.colour.brightness), 0, 1}}},
          {"contrast", 4, {{"amount", one(n.colour.contrast), 0, 1}}},
          {"saturation", 5, {{"amount", one(n.colour.saturation), 0, 1}}},
          {"hue", 6, {{"amount", one(n.colour.hue), 0, 0.5}}},
          {"grayscale", 7, {{"probability", one(n.colour.gray_probability), 0, 1}}},
          {"translate", 8, {{"pixels", one(n.translate), 1, 1024, true}}},
          {"cutout", 9, {{"pixels", one(n.cutout), 1, 1024, true}}},
          {"normalise", 10, {{"mean", n.mean, 0, 1}, {"deviation", n.deviation, 1e-6, 1e6}}},
          {"mixup", 11, mixing_values(n.mixup)},
          {"cutmix", 12, mixing_values(n.cutmix)}};
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

/// Cuts at `separator` outside of brackets.
std::vector<std::string_view> cut_outside(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '(' || text[i] == '[')) ++depth;
    if (i < text.size() && (text[i] == ')' || text[i] == ']')) --depth;
    if (i < text.size() && (text[i] != separator || depth != 0)) continue;
    pieces.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return pieces;
}

std::string quoted(std::string_view text) { return base::json_quote(text.substr(0, kMaxShown)); }

class StageParser {
 public:
  void parse(std::string_view text) {
    int last = -1;
    for (const std::string_view piece : cut_outside(text, ',')) {
      const size_t open = std::min(piece.find('('), piece.size());
      const std::string_view name = trimmed(piece.substr(0, open));
      const auto kind = std::ranges::find(kinds_, name, &StageKind::name);
      if (kind == kinds_.end()) {
        unknown_stage(name);
        continue;
      }
      // An unknown stage may have been meant as the crop.
      if (last < 0 && kind->place != 0 && !has_unknown_) {
        add("the first stage is {}, but must be a crop", name);
      } else if (kind->place <= last) {
        std::vector<std::string_view> order;
        for (const StageKind& one : kinds_) {
          if (one.place > 0) order.push_back(one.name);
        }
        add("stage {} comes twice or too late: the order is a crop, {}", name,
            fmt::join(order, ", "));
      }
      last = std::max(last, kind->place);
      used_.push_back(name);
      parse_values(*kind, piece.substr(open));
    }
  }

  Result<ImageStages> take() {
    const RandomResizedCrop& random = numbers_.random;
    if (random.min_area > random.max_area || random.min_ratio > random.max_ratio) {
      add("random_resized_crop: a minimum is above its maximum");
    }
    const double mixed = numbers_.mixup.probability + numbers_.cutmix.probability;
    if (has("mixup") && has("cutmix") && mixed > 1) {
      add("mixup.probability + cutmix.probability is {}, but a sample is mixed once; write "
          "mixup(probability = 0.5), cutmix(probability = 0.5)",
          mixed);
    }
    if (!mistakes_.empty()) {
      return base::invalid_argument(fmt::format("{}", fmt::join(mistakes_, "; ")));
    }
    ImageStages stages;
    if (has("center_crop")) stages.crop = numbers_.center;
    if (has("random_resized_crop")) stages.crop = random;
    if (has("flip")) stages.flip_probability = numbers_.flip;
    if (has("vertical_flip")) stages.vertical_flip_probability = numbers_.vertical_flip;
    if (has("brightness")) stages.colour.brightness = numbers_.colour.brightness;
    if (has("contrast")) stages.colour.contrast = numbers_.colour.contrast;
    if (has("saturation")) stages.colour.saturation = numbers_.colour.saturation;
    if (has("hue")) stages.colour.hue = numbers_.colour.hue;
    if (has("grayscale")) stages.colour.gray_probability = numbers_.colour.gray_probability;
    if (has("mixup")) stages.mixup = numbers_.mixup;
    if (has("cutmix")) stages.cutmix = numbers_.cutmix;
    if (has("translate")) stages.translate_pixels = static_cast<int64_t>(numbers_.translate);
    if (has("cutout")) stages.cutout_pixels = static_cast<int64_t>(numbers_.cutout);
    if (!has("normalise")) return stages;
    stages.mean = numbers_.mean;
    stages.deviation = numbers_.deviation;
    return stages;
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    mistakes_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool has(std::string_view name) const { return std::ranges::find(used_, name) != used_.end(); }

  /// The first of them lists those that are.
  void unknown_stage(std::string_view name) {
    if (std::exchange(has_unknown_, true)) return add("{} is no stage", quoted(name));
    std::vector<std::string_view> names;
    for (const StageKind& kind : kinds_) names.push_back(kind.name);
    add("{} is no stage; stages are {}", quoted(name), fmt::join(names, ", "));
  }

  void parse_values(const StageKind& kind, std::string_view text) {
    if (text.empty()) return;
    if (!text.ends_with(')')) return add("{} lacks a closing bracket", kind.name);
    text = trimmed(text.substr(1, text.size() - 2));
    if (text.empty()) return;
    for (const std::string_view piece : cut_outside(text, ',')) {
      const size_t equals = std::min(piece.find('='), piece.size());
      const std::string_view name = trimmed(piece.substr(0, equals));
      const auto value = std::ranges::find(kind.values, name, &StageValue::name);
      if (value != kind.values.end() && equals < piece.size()) {
        parse_numbers(kind, *value, trimmed(piece.substr(equals + 1)));
      } else if (name == "size") {
        add("{} has no size; data.image_size is the side length of samples", kind.name);
      } else {
        std::vector<std::string_view> names;
        for (const StageValue& one : kind.values) names.push_back(one.name);
        add("{} has no value {}; write {} = NUMBER", kind.name, quoted(piece),
            fmt::join(names, " or "));
      }
    }
  }

  void parse_numbers(const StageKind& kind, const StageValue& value, std::string_view text) {
    const bool is_list = text.starts_with('[') && text.ends_with(']');
    if (is_list) text = text.substr(1, text.size() - 2);
    const auto pieces = cut_outside(text, ',');
    if (pieces.size() != value.numbers.size()) {
      return add("{}.{} is {} numbers, but must be {}", kind.name, value.name, pieces.size(),
                 value.numbers.size());
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      double number = 0;
      const char* end = pieces[i].data() + pieces[i].size();
      const auto [stop, error] = std::from_chars(pieces[i].data(), end, number);
      const bool is_number = error == std::errc() && stop == end;
      const bool fits =
          is_number && number >= value.min && number <= value.max &&
          (!value.is_whole || number == static_cast<double>(static_cast<int>(number)));
      if (fits) {
        value.numbers[i] = number;
      } else {
        add("{}.{} is {}, but must be {} from {} to {}", kind.name, value.name, quoted(pieces[i]),
            value.is_whole ? "an integer" : "a number", value.min, value.max);
      }
    }
  }

  StageNumbers numbers_;
  std::vector<StageKind> kinds_ = stage_kinds(numbers_);
  std::vector<std::string_view> used_;
  std::vector<std::string> mistakes_;
  bool has_unknown_ = false;
};

}  // namespace

Result<ImageStages> parse_image_stages(std::string_view text) {
  StageParser parser;
  parser.parse(text);
  return parser.take();
}

}  // namespace hanji::plan
