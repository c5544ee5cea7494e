// What excludes each other of a model and its data.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/units.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

void check_one_source(const Config& c, std::string_view images, Found& found) {
  for (const auto& [key, path] :
       {std::pair("data.text", &c.data.text), std::pair("data.tokens", &c.data.tokens),
        std::pair("data.files", &c.data.files)}) {
    if (path->empty() || key == images) continue;
    const bool needs_images = family_of(c.model).data == DataKind::kImages && path != &c.data.files;
    found.push_back({{key, images},
                     fmt::format("{} and {} are both set, but a run has one source", key, images),
                     needs_images ? fmt::format("remove {}, or set another model.preset", key)
                                  : "remove one of them"});
  }
}

/// Images and what describes them.
void check_images(const Config& c, Found& found) {
  const bool are_generated = c.data.images != Images::kNone;
  const bool are_in_a_file = !c.data.files.empty();
  if (are_generated) {
    check_one_source(c, "data.images", found);
  } else if (are_in_a_file) {
    check_one_source(c, "data.files", found);
  }
  const auto describe = [&](std::string_view name, std::string_view of, std::string_view value) {
    const Key& key = *find_key(name);
    if (key.get(c) == key.get(Config())) return;
    const bool is_set = of == "data.files" ? are_in_a_file : are_generated;
    if (is_set || (are_in_a_file && name == "data.image_size")) return;
    found.push_back({{name, of},
                     fmt::format("{} is set, but {}, which it describes, is {}", name, of,
                                 of == "data.files" ? "empty" : "none"),
                     fmt::format("set {}, or remove {}", value, name)});
  };
  const bool are_tokens = are_in_a_file && family_of(c.model).data == DataKind::kTokens;
  for (const std::string_view name :
       {"data.image_size", "data.stage", "data.corrupt", "data.weights"}) {
    const Key& key = *find_key(name);
    if (!are_tokens || key.get(c) == key.get(Config())) continue;
    found.push_back({{name, "data.files"},
                     fmt::format("{} is of images, but data.files has tokens for model.preset = {}",
                                 name, c.model.preset),
                     fmt::format("remove {}", name)});
  }
  for (const std::string_view name : {"data.image_size", "data.classes", "data.image_count"}) {
    describe(name, "data.images", "data.images = \"generated\"");
  }
  for (const std::string_view name : {"data.stage", "data.corrupt", "data.weights", "data.cache"}) {
    describe(name, "data.files", "data.files");
  }
}

void check_order(const Config& c, Found& found) {
  const bool is_quasi = c.data.order == SampleOrder::kQuasi;
  if (!c.data.weights.empty() && c.data.order != SampleOrder::kRandom) {
    found.push_back(
        {{"data.weights", "data.order"},
         fmt::format("data.weights draws samples with replacement, but data.order is {}",
                     name_of(c.data.order)),
         "remove one of them"});
  }
  if (c.data.workers == 0 && c.data.prefetch > 0) {
    found.push_back({{"data.prefetch", "data.workers"},
                     fmt::format("data.prefetch is {} ahead, but data.workers, which read "
                                 "them, are none",
                                 base::counted(c.data.prefetch, "step")),
                     "set data.workers = \"auto\", or remove data.prefetch"});
  }
  const bool is_cached = c.data.cache == FileCache::kProcess;
  if (c.data.pages != DataConfig().pages && !is_quasi && !is_cached) {
    found.push_back(
        {{"data.pages", "data.order"},
         fmt::format("data.pages is set, but neither is data.order quasi nor data.cache "
                     "process, which have so many pages at a time, but {} and {}",
                     name_of(c.data.order), name_of(c.data.cache)),
         "set one of them, or remove data.pages"});
  }
  if (is_cached && engine_of(c) != Engine::kShm) {
    found.push_back(
        {{"data.cache", "comm.engine"},
         fmt::format("data.cache = process is in memory that the ranks of a host share, "
                     "but comm.engine is {}",
                     name_of(c.comm.engine)),
         "set data.cache = \"os\", or remove comm.engine"});
  }
  if (is_quasi && c.data.images != Images::kNone) {
    found.push_back(
        {{"data.order", "data.images"},
         "data.order is quasi, which is for files of pages, but data.images are generated",
         "set data.order = \"random\""});
  }
}

/// Generated pairs and what describes them.
void check_pairs(const Config& c, Found& found) {
  const bool are_generated = c.data.pairs != Pairs::kNone;
  if (are_generated && family_of(c.model).data == DataKind::kPairs) {
    check_one_source(c, "data.pairs", found);
    if (c.data.images != Images::kNone) {
      found.push_back({{"data.images", "data.pairs"},
                       "data.images and data.pairs are both set, but a run has one source",
                       "remove one of them"});
    }
  }
  for (const std::string_view name : {"data.residues", "data.sequences", "data.systems"}) {
    const Key& key = *find_key(name);
    const bool of_sequences = name == "data.sequences";
    const bool is_read = of_sequences ? has_sequences(c.data.pairs) : are_generated;
    if (is_read || key.get(c) == key.get(Config())) continue;
    found.push_back({{name, "data.pairs"},
                     fmt::format("{} is set, but data.pairs, which it describes, is {}", name,
                                 name_of(c.data.pairs)),
                     fmt::format("remove {}", name)});
  }
}

/// The source that is set, and its value.
std::pair<std::string_view, std::string> source_of(const Config& c, DataKind wanted) {
  const bool none = c.data.files.empty() && c.data.images == Images::kNone;
  if (c.data.pairs != Pairs::kNone || (none && wanted == DataKind::kPairs)) {
    return {"data.pairs", std::string(name_of(c.data.pairs))};
  }
  if (!c.data.files.empty()) return {"data.files", "set"};
  return {"data.images", std::string(name_of(c.data.images))};
}

/// What to set, or else to remove, for a family's data.
std::string wanted_source(const ModelFamily& family, std::string_view key) {
  if (family.data == DataKind::kImages) return "set data.images = \"generated\"";
  if (family.data != DataKind::kPairs) return fmt::format("remove {}", key);
  const Key& pairs = *find_key("data.pairs");
  return fmt::format("set data.pairs = {}", format_value(pairs, family.defaults.front().value));
}

/// What the model's family learns from, reads and computes in.
void check_family(const Config& c, Found& found) {
  const ModelFamily& family = family_of(c.model);
  if (data_kind(c) != family.data) {
    const auto [key, value] = source_of(c, family.data);
    found.push_back({{key, "model.preset"},
                     fmt::format("model.preset = {} learns from {}, but {} is {}", c.model.preset,
                                 targets_of(family.data), key, value),
                     wanted_source(family, key)});
  }
  for (const Key& key : schema()) {
    // Any source is read by threads.
    const bool is_reading = key.name == "data.workers" || key.name.starts_with("data.prefetch");
    const bool own_data =
        family.data == DataKind::kOwn && key.name.starts_with("data.") && !is_reading;
    if ((is_read(c.model, key.name) && !own_data) || key.get(c) == key.get(Config())) continue;
    found.push_back(
        {{key.name, "model.preset"},
         fmt::format("{} is set, but model.preset = {} has no such size", key.name, c.model.preset),
         fmt::format("remove {}", key.name)});
  }
  if (c.train.grain < family.smallest_grain) {
    found.push_back(
        {{"train.grain", "model.preset"},
         fmt::format("train.grain is {}, but model.preset = {} normalises by batches, "
                     "which takes grains of at least {}",
                     c.train.grain, c.model.preset, base::counted(family.smallest_grain, "sample")),
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
  check_order(c, found);
  check_pairs(c, found);
}

void check_model(const Config& c, Found& found) {
  check_family(c, found);
  const auto check = family_of(c.model).check;
  if (check == nullptr) return;
  for (Contradiction& one : check(c)) found.push_back(std::move(one));
}

}  // namespace hanji::plan
