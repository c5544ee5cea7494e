// What excludes each other of ranks that share out the layers, or the rows of pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/model_family.h"
#include "hanji/schedule/pipeline_check.h"
#include "hanji/schedule/pipeline_csv.h"

namespace hanji::plan {
namespace {

void check_without_stages(const PipelineConfig& p, Found& found) {
  const auto needs_pp = [&](std::string_view key, bool is_set) {
    if (!is_set) return;
    found.push_back({{key, "mesh.pp"},
                     fmt::format("{} is set, but mesh.pp is 1", key),
                     fmt::format("set mesh.pp, or remove {}", key)});
  };
  needs_pp("pipeline.schedule", p.schedule != PipelineConfig().schedule);
  needs_pp("pipeline.micro_batches", p.micro_batches != kAuto);
  needs_pp("pipeline.virtual_stages", p.virtual_stages > 1);
  needs_pp("pipeline.cut", !p.cut.empty());
}

/// What stages are not trained with.
void check_limits(const Config& c, Found& found) {
  const std::string stages = fmt::format("mesh.pp = {}", c.mesh.pp);
  const auto refuse = [&](std::string_view key, std::string message, std::string suggestion) {
    found.push_back({{key, "mesh.pp"}, std::move(message), std::move(suggestion)});
  };
  if (c.parallel.data == Sharding::kServer) {
    refuse("parallel.data",
           fmt::format("{} sums the gradients of each stage when its last backward ends, but "
                       "parallel.data = server pushes those of the whole model at once",
                       stages),
           "set parallel.data = \"zero1\"");
  }
  if (c.mesh.axial > 1) {
    refuse("mesh.axial",
           fmt::format("{} has whole layers in its stages, but mesh.axial is {}", stages,
                       c.mesh.axial),
           "remove mesh.axial");
  }
  if (c.offload.optimizer == Place::kFile) {
    refuse("offload.optimizer",
           fmt::format("{} keeps moments in memory, but offload.optimizer is file", stages),
           "set offload.optimizer = \"memory\"");
  }
  if (c.compute.device == Device::kCuda) {
    refuse("compute.device", fmt::format("{} runs on CPUs, but compute.device is cuda", stages),
           "set compute.device = \"cpu\"");
  } else if (engine_of(c) != Engine::kShm && engine_of(c) != Engine::kHierarchical) {
    refuse("comm.engine",
           fmt::format("{} needs ranks of a host that share memory, but comm.engine is {}", stages,
                       name_of(c.comm.engine)),
           "set comm.engine = \"auto\"");
  }
}

/// That a file has what the mesh asks for, and that its ranks end.
void check_user_schedule(const Config& c, Found& found) {
  const auto refuse = [&](std::string_view key, std::string message, std::string suggestion) {
    found.push_back({{"pipeline.schedule", key}, std::move(message), std::move(suggestion)});
  };
  const auto user = schedule::pipeline_from_csv(c.pipeline.lines);
  if (!user.ok()) {
    for (const std::string_view one : base::split(user.status().message(), '\n')) {
      refuse("mesh.pp", fmt::format("pipeline.schedule: {}", one),
             "name a file with a line per rank");
    }
    return;
  }
  const auto& shape = user->shape;
  if (shape.num_ranks != c.mesh.pp) {
    refuse("mesh.pp",
           fmt::format("pipeline.schedule has lines of {}, but mesh.pp is {}",
                       base::counted(shape.num_ranks, "rank"), c.mesh.pp),
           fmt::format("set mesh.pp = {}", shape.num_ranks));
  }
  if (const int64_t asked = c.pipeline.micro_batches;
      asked != kAuto && asked != shape.num_micro_batches) {
    refuse("pipeline.micro_batches",
           fmt::format("pipeline.schedule has {} micro-batches, but pipeline.micro_batches is {}",
                       shape.num_micro_batches, asked),
           "remove pipeline.micro_batches");
  }
  // A send waits in the heap of its rank: any number may.
  const Status ends = schedule::check(*user, std::numeric_limits<int64_t>::max());
  if (ends.ok()) return;
  refuse("mesh.pp", fmt::format("pipeline.schedule: {}", ends.message()), "reorder its lines");
}

void check_schedule(const PipelineConfig& p, Found& found) {
  if (std::ranges::any_of(p.cut, [](double first) { return first != std::floor(first); })) {
    found.push_back(
        {{"pipeline.cut"}, "pipeline.cut has a number that is no layer", "give whole numbers"});
  }
  const bool loops = p.schedule != PipelineKind::kUser &&
                     schedule::stages_per_rank(p.schedule, 2) == 2 &&
                     schedule::stages_per_rank(p.schedule, 1) == 1;
  if (p.virtual_stages == 1 || loops) return;
  found.push_back({{"pipeline.virtual_stages", "pipeline.schedule"},
                   fmt::format("pipeline.virtual_stages is {}, but pipeline.schedule = {} has a "
                               "fixed number of stages per rank",
                               p.virtual_stages, name_of(p.schedule)),
                   "set pipeline.schedule = \"interleaved\", or remove pipeline.virtual_stages"});
}

}  // namespace

void check_stages(const Config& config, Found& found) {
  if (config.mesh.pp == 1) return check_without_stages(config.pipeline, found);
  check_limits(config, found);
  check_schedule(config.pipeline, found);
  if (config.pipeline.schedule == PipelineKind::kUser) check_user_schedule(config, found);
}

void check_shares_memory(const Config& c, std::string_view axis, int64_t degree,
                         std::string_view what, Found& found) {
  const auto refuse = [&](std::string_view key, const std::string& why, std::string suggestion) {
    found.push_back(
        {{key, axis}, fmt::format("{} = {} {}", axis, degree, why), std::move(suggestion)});
  };
  if (c.compute.device == Device::kCuda) {
    refuse("compute.device", fmt::format("cuts {} on CPUs, but compute.device is cuda", what),
           "set compute.device = \"cpu\"");
  } else if (engine_of(c) != Engine::kShm) {
    refuse(
        "comm.engine",
        fmt::format("needs ranks that share memory, but comm.engine is {}", name_of(c.comm.engine)),
        "set comm.engine = \"shm\"");
  }
}

void check_axial(const Config& c, Found& found) {
  const TriangleWay triangle = c.parallel.triangle;
  if (triangle != TriangleWay::kAuto && c.mesh.axial == 1) {
    found.push_back({{"parallel.triangle", "mesh.axial"},
                     fmt::format("parallel.triangle = {} is how the ranks of mesh.axial multiply, "
                                 "which is 1",
                                 name_of(triangle)),
                     "set mesh.axial, or remove parallel.triangle"});
  }
  if (c.mesh.axial == 1 || !is_cut_by(family_of(c.model), "axial")) return;
  const auto refuse = [&](std::string_view key, std::string_view why, std::string suggestion) {
    found.push_back({{key, "mesh.axial"},
                     fmt::format("mesh.axial = {} {}", c.mesh.axial, why),
                     std::move(suggestion)});
  };
  // More ranks than rows are refused by themselves.
  const int64_t most = family_of(c.model).parts(c, "axial").most_ranks();
  const int64_t ranks = std::min(c.mesh.axial, most);
  if (c.train.bits == Bits::kStable && c.train.cuts.tokens < ranks) {
    refuse("train.bits",
           fmt::format("with train.bits = stable computes rows in {} or more, but "
                       "train.cuts.tokens is {}",
                       base::counted(ranks, "block"), c.train.cuts.tokens),
           fmt::format("set train.cuts.tokens = {}{}, or train.bits = \"run\"", ranks,
                       ranks < most ? " or more" : ""));
  }
  const bool by_rows = triangle == TriangleWay::kGather || triangle == TriangleWay::kRing;
  if (const int64_t width = resolved(c.model).width; !by_rows && c.mesh.axial > width) {
    refuse("model.width",
           fmt::format("gives every rank a channel or more of a triangle product, but model.width "
                       "is {}",
                       width),
           fmt::format("set mesh.axial = {} or less{}", width,
                       c.train.bits == Bits::kStable ? "" : ", or parallel.triangle = \"ring\""));
  }
  if (c.train.bits == Bits::kStable && by_rows) {
    refuse("parallel.triangle",
           fmt::format("with train.bits = stable multiplies each channel whole, as one rank does, "
                       "but parallel.triangle = {} sums over the rows of each rank by itself",
                       name_of(triangle)),
           "set parallel.triangle = \"channels\", or train.bits = \"run\"");
  }
  if (c.parallel.data == Sharding::kServer) {
    refuse("parallel.data", "adds up terms of all ranks, but parallel.data = server serves workers",
           "set parallel.data = \"ddp\", \"zero1\", \"zero2\", \"zero3\" or \"hsdp\"");
  }
  check_shares_memory(c, "mesh.axial", c.mesh.axial, "pairs", found);
}

}  // namespace hanji::plan
