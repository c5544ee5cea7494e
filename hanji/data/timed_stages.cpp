#include "hanji/data/internal/timed_stages.h"

#include <variant>

namespace hanji::data::internal {
namespace {

/// Adds parts to those before them.
class StageList {
 public:
  explicit StageList(const plan::ImageStages& all) : all_(all) { so_far_.crop = all.crop; }

  void add(const char* name, MadeUntil until) {
    parts_.push_back({name, so_far_, until, changes_tile_});
  }
  /// A stage, if `all` has it.
  template <class Value>
  void add(const char* name, MadeUntil until, Value plan::ImageStages::*value) {
    if (all_.*value == Value()) return;
    so_far_.*value = all_.*value;
    add(name, until);
  }
  void add_colour(const char* name, double plan::ColourAmounts::*amount) {
    if (all_.colour.*amount == 0) return;
    so_far_.colour.*amount = all_.colour.*amount;
    add(name, MadeUntil::kResized);
  }
  void add_own() {
    changes_tile_ = true;
    add("own stage", MadeUntil::kResized);
  }
  std::vector<TimedStage> take() { return std::move(parts_); }

 private:
  const plan::ImageStages& all_;
  plan::ImageStages so_far_;
  bool changes_tile_ = false;
  std::vector<TimedStage> parts_;
};

}  // namespace

std::vector<TimedStage> timed_stages(const plan::ImageStages& all, const UnnamedStages& unnamed) {
  using plan::ColourAmounts;
  using plan::ImageStages;
  StageList list(all);
  list.add("read", MadeUntil::kRead);
  if (unnamed.decodes) list.add("decode", MadeUntil::kDecoded);
  const bool is_random = std::holds_alternative<plan::RandomResizedCrop>(all.crop);
  list.add(is_random ? "random_resized_crop" : "center_crop", MadeUntil::kResized);
  list.add("flip", MadeUntil::kResized, &ImageStages::flip_probability);
  list.add("vertical_flip", MadeUntil::kResized, &ImageStages::vertical_flip_probability);
  list.add_colour("brightness", &ColourAmounts::brightness);
  list.add_colour("contrast", &ColourAmounts::contrast);
  list.add_colour("saturation", &ColourAmounts::saturation);
  list.add_colour("hue", &ColourAmounts::hue);
  list.add_colour("grayscale", &ColourAmounts::gray_probability);
  if (unnamed.changes_tile) list.add_own();
  const bool has_scale = all.mean != ImageStages().mean || all.deviation != ImageStages().deviation;
  list.add(has_scale ? "normalise" : "to floats", MadeUntil::kWritten);
  list.add("translate", MadeUntil::kWritten, &ImageStages::translate_pixels);
  list.add("cutout", MadeUntil::kWritten, &ImageStages::cutout_pixels);
  return list.take();
}

}  // namespace hanji::data::internal
