#include <fmt/format.h>

#include <cmath>

#include "hanji/base/units.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {
namespace {

Point judge_file(const ImagesFacts& facts) {
  if (!facts.file_mistakes.empty()) {
    return {false, "photos.beton: " + facts.file_mistakes.front(),
            "hanji data make --help; hanji data verify photos.beton"};
  }
  if (facts.file_samples != facts.folder_images) {
    return {false,
            fmt::format("photos.beton has {}, the folder photos {}",
                        base::counted(facts.file_samples, "sample"),
                        base::counted(facts.folder_images, "image")),
            "rm photos.beton, and make it of the folder as it is"};
  }
  return {true, fmt::format("photos.beton has the {} images of the folder photos, whole",
                            facts.file_samples)};
}

Point judge_training(const ImagesFacts& facts) {
  const double chance = std::log(static_cast<double>(facts.folder_classes));
  if (!facts.trained_on_file) {
    return {false, fmt::format("the run has learned {}, not photos.beton", facts.trained_on),
            "data.files is the key of a file of samples; rm -r run, and run the script again"};
  }
  const std::string seen =
      fmt::format("validation loss {:.3g} nats; guessing among {} classes has {:.3g}",
                  facts.validation_loss, facts.folder_classes, chance);
  if (facts.validation_loss < 0.8 * chance) return {true, seen};
  return {false, seen,
          "more steps: the images are easy to tell apart; rm -r run, and run the script again"};
}

}  // namespace

Judgement judge_images(const Answers& answers, const ImagesFacts& facts) {
  const std::string source = answers.text("source").value_or("");
  if (source.empty())
    return {{false, "source: no line source=KEY=VALUE was printed",
             "leave the last lines of the script as they are"}};
  const bool says_file = source.starts_with("data.files=") && source.ends_with("photos.beton");
  if (says_file != facts.trained_on_file) {
    return {judge_kept({"run", facts.trained_on, "images.sh", source})};
  }
  Judgement judgement{judge_file(facts)};
  judgement.push_back(judge_number(
      answers,
      {"classes", static_cast<double>(facts.folder_classes), 0,
       fmt::format("the folder photos has {} folders, one for each class", facts.folder_classes),
       "ls photos; hanji data info photos.beton"}));
  judgement.push_back(judge_training(facts));
  const double steps =
      static_cast<double>(facts.train_samples) / static_cast<double>(facts.global_batch);
  judgement.push_back(judge_number(
      answers, {"steps_per_epoch", steps, 0.02,
                fmt::format("{} training samples in global batches of {} are {:.4g} steps",
                            facts.train_samples, facts.global_batch, steps),
                "data.validation_fraction = 0.1 of the file validates; the plan's line `data` "
                "counts both; do not round"}));
  return judgement;
}

}  // namespace hanji::cli
