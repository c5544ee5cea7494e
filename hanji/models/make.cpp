#include "hanji/models/make.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/models/evoformer.h"
#include "hanji/models/gpt.h"
#include "hanji/models/resnet.h"
#include "hanji/plan/context.h"
#include "hanji/plan/model_family.h"

namespace hanji::models {
namespace {

std::shared_ptr<layers::Model> gpt(const plan::Config& config, const MakeOptions& options) {
  const plan::ModelConfig& model = config.model;
  return make_gpt({.layers = model.layers,
                   .heads = model.heads,
                   .width = model.width,
                   .block = model.block,
                   .vocabulary = model.vocabulary,
                   .dropout = model.dropout,
                   .tied = model.tied,
                   .seed = static_cast<uint64_t>(config.train.seed),
                   .dtype = options.kernels.precision,
                   .attention = options.kernels.attention,
                   .device = options.device,
                   .kv_heads = std::max<int64_t>(0, model.kv_heads),
                   .axis = options.axis,
                   .sequence = config.parallel.sequence,
                   .moves_weights = config.parallel.moves == plan::Moves::kWeights,
                   .token_blocks = static_cast<int>(config.train.cuts.tokens),
                   .own_layers = options.layers,
                   .context = options.context,
                   .context_way = plan::context_way(config)});
}

std::shared_ptr<layers::Model> resnet(const plan::Config& config, const MakeOptions& options) {
  ResNetOptions sizes = resnet_preset(config.model.preset);
  sizes.width = config.model.width;
  sizes.classes = options.classes;
  sizes.seed = static_cast<uint64_t>(config.train.seed);
  sizes.dtype = options.kernels.precision;
  sizes.device = options.device;
  sizes.own_layers = options.layers;
  return make_resnet(sizes);
}

std::shared_ptr<layers::Model> evoformer(const plan::Config& config, const MakeOptions& options) {
  const plan::ModelConfig& model = config.model;
  return make_evoformer({.blocks = model.layers,
                         .width = model.width,
                         .heads = model.heads,
                         .classes = options.classes,
                         .has_msa = plan::family_of(model).name == "evoformer",
                         .has_attention = model.preset != "pairmixer",
                         .dropout = model.dropout,
                         .seed = static_cast<uint64_t>(config.train.seed),
                         .dtype = options.kernels.precision,
                         .device = options.device,
                         .axis = options.axis.in_blocks(static_cast<int>(config.train.cuts.tokens)),
                         .triangle = config.parallel.triangle,
                         .chunk_bytes = model.chunk_bytes});
}

struct Maker {
  std::string_view family;
  std::shared_ptr<layers::Model> (*make)(const plan::Config& config, const MakeOptions& options);
};

constexpr std::array kMakers = {Maker{"gpt", gpt}, Maker{"resnet", resnet},
                                Maker{"evoformer", evoformer}, Maker{"pairformer", evoformer}};

}  // namespace

std::shared_ptr<layers::Model> make(const plan::Config& config, const MakeOptions& options) {
  const std::string_view family = plan::family_of(config.model).name;
  for (const Maker& one : kMakers) {
    if (one.family == family) return one.make(config, options);
  }
  throw Error(base::unsupported(
      fmt::format("model.preset = {} is a program's own model, which only that program can make: "
                  "start the program, whose hanji::train_model() trains it",
                  config.model.preset)));
}

}  // namespace hanji::models
