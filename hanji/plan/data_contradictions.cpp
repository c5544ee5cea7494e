// What excludes each other of a model and its data.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

/// Images and what describes them.
void check_images(const Config& c, Found& found) {
  if (c.data.images != Images::kNone) {
    for (const auto& [key, path] :
         {std::pair("data.text", &c.data.text), std::pair("data.tokens", &c.data.tokens)}) {
      if (path->empty()) continue;
      found.push_back(
          {{key, "data.images"},
           fmt::format("{} and data.images are both set, but a run has one source", key),
           "remove one of them"});
    }
    return;
  }
  for (const std::string_view name : {"data.image_size", "data.classes", "data.image_count"}) {
    const Key& key = *find_key(name);
    if (key.get(c) == key.get(Config())) continue;
    found.push_back({{name, "data.images"},
                     fmt::format("{} is set, but data.images, which it describes, is none", name),
                     fmt::format("set data.images = \"generated\", or remove {}", name)});
  }
}

/// What the model's family learns from, reads and computes in.
void check_family(const Config& c, Found& found) {
  const ModelFamily& family = family_of(c.model);
  if (data_kind(c) != family.data) {
    found.push_back({{"data.images", "model.preset"},
                     fmt::format("model.preset = {} learns from {}, but data.images is {}",
                                 c.model.preset, targets_of(family.data), name_of(c.data.images)),
                     family.data == DataKind::kImages ? "set data.images = \"generated\""
                                                      : "remove data.images"});
  }
  for (const Key& key : schema()) {
    const bool own_data = family.data == DataKind::kOwn && key.name.starts_with("data.");
    if ((is_read(c.model, key.name) && !own_data) || key.get(c) == key.get(Config())) continue;
    found.push_back(
        {{key.name, "model.preset"},
         fmt::format("{} is set, but model.preset = {} has no such size", key.name, c.model.preset),
         fmt::format("remove {}", key.name)});
  }
  if (c.train.grain < family.smallest_grain) {
    found.push_back({{"train.grain", "model.preset"},
                     fmt::format("train.grain is {}, but model.preset = {} normalises by batches, "
                                 "which takes grains of at least {} samples",
                                 c.train.grain, c.model.preset, family.smallest_grain),
                     fmt::format("set train.grain = {}", family.smallest_grain)});
  }
  if (std::ranges::find(family.precisions, c.compute.dtype) == family.precisions.end()) {
    found.push_back({{"compute.dtype", "model.preset"},
                     fmt::format("compute.dtype is {}, in which model.preset = {} does not compute",
                                 name_of(c.compute.dtype), c.model.preset),
                     "set compute.dtype = \"float32\""});
  }
}

void check_texts(const Config& c, Found& found) {
  if (!c.data.text.empty() && !c.data.tokens.empty()) {
    found.push_back({{"data.tokens", "data.text"},
                     "data.text and data.tokens are both set, but a run has one source",
                     "remove one of them"});
  }
  if (c.data.tokens.empty() && c.data.format != TokenFormat::kAuto) {
    found.push_back({{"data.format", "data.tokens"},
                     fmt::format("data.format is {}, but data.tokens, which it describes, is empty",
                                 name_of(c.data.format)),
                     "set data.tokens, or remove data.format"});
  }
  if (c.data.vocabulary == VocabularyKind::kByte && !c.data.tokens.empty()) {
    found.push_back({{"data.vocabulary", "data.tokens"},
                     "data.vocabulary = byte splits a text, but data.tokens is split already",
                     "remove data.vocabulary"});
  }
  const bool bytes = c.data.vocabulary == VocabularyKind::kByte && c.data.tokens.empty();
  if (bytes && c.model.vocabulary != kAuto && c.model.vocabulary < 256) {
    found.push_back(
        {{"model.vocabulary", "data.vocabulary"},
         fmt::format("model.vocabulary is {}, but data.vocabulary = byte has 256 tokens",
                     c.model.vocabulary),
         "set model.vocabulary = \"auto\""});
  }
}

}  // namespace

void check_data(const Config& c, Found& found) {
  check_texts(c, found);
  check_images(c, found);
}

void check_model(const Config& c, Found& found) {
  check_family(c, found);
  const auto check = family_of(c.model).check;
  if (check == nullptr) return;
  for (Contradiction& one : check(c)) found.push_back(std::move(one));
}

}  // namespace hanji::plan
