#include "hanji/plan/schema.h"

#include <algorithm>
#include <array>
#include <limits>

#include "hanji/base/limits.h"
#include "hanji/plan/internal/keys.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/nccl_variables.h"
#include "hanji/plan/train_limits.h"

namespace hanji::plan {
namespace keys {
namespace {

/// A text that lies in a map under the last word of its key, unless it is empty.
Key text_in(Texts CommConfig::*map, std::string_view name, std::string_view doc) {
  const std::string member(name.substr(name.rfind('.') + 1));
  Key key;
  key.name = name;
  key.doc = doc;
  key.get = [map, member](const Config& c) -> Value {
    const auto found = (c.comm.*map).find(member);
    return found == (c.comm.*map).end() ? std::string() : found->second;
  };
  key.set = [map, member](Config& c, const Value& v) {
    (c.comm.*map)[member] = std::get<std::string>(v);
    std::erase_if(c.comm.*map, [](const auto& one) { return one.second.empty(); });
  };
  return text(std::move(key));
}

/// A name of a schedule, or a file.
Key pipeline_schedule(std::string_view name, std::string_view doc) {
  Key key;
  key.name = name;
  key.doc = doc;
  key.get = [](const Config& c) -> Value {
    const PipelineConfig& p = c.pipeline;
    return p.schedule == PipelineKind::kUser ? p.lines : std::string(name_of(p.schedule));
  };
  key.set = [](Config& c, const Value& v) {
    const auto& text = std::get<std::string>(v);
    const auto kind = schedule::pipeline_kind_named(text);
    c.pipeline.schedule = kind.value_or(PipelineKind::kUser);
    c.pipeline.lines = kind ? "" : text;
  };
  return rare(text(std::move(key)));
}

constexpr std::string_view kNoFloat16 =
    "its gradients need a scaled loss, which hanji train does not do (LossScaler is for programs "
    "of "
    "your own); use bf16 or float32";
constexpr std::array kRefusedPrecisions = {
    Refusal{"fp16", kNoFloat16}, Refusal{"float16", kNoFloat16},
    Refusal{"bfloat16", "it is spelt bf16 here"}, Refusal{"fp32", "it is spelt float32 here"},
    Refusal{"fp64", "it is spelt float64 here"}};
constexpr std::string_view kWhichGpu =
    "rank r of a host computes on its GPU r; write cuda, and name GPUs with CUDA_VISIBLE_DEVICES";
constexpr std::array kRefusedDevices = {
    Refusal{"gpu", "it is spelt cuda here"}, Refusal{"cuda:0", kWhichGpu},
    Refusal{"cuda:1", kWhichGpu}, Refusal{"mps", "no engine here moves its tensors; use cpu"},
    Refusal{"meta", "it computes nothing; use cpu, or hanji plan to see what a run would take"}};

constexpr std::array kRefusedShardings = {
    Refusal{"dp", "it is spelt ddp here"}, Refusal{"zero", "write zero1, zero2 or zero3"},
    Refusal{"fsdp", "it is spelt zero3 here, and hsdp within groups"}};

static_assert(base::kMaxRanksPerHost == 16, "the words of run.ranks say so");

std::vector<Key> run_keys() {
  return {
      integer(HANJI_KEY(run.ranks,
                        "Processes that train together, at most 16 per host. auto: one per "
                        "usable physical core of a host, at most one per grain."),
              "ranks", {1, base::kMaxRanks}, Auto::kYes),
      text(HANJI_KEY(run.out, "Folder of all files of the run. Empty: a new one in runs/.")),
  };
}

/// Its words are those of the table of models.
Key preset_key() {
  Key key;
  key.name = "model.preset";
  key.type = KeyType::kChoice;
  key.choices = preset_names();
  key.doc =
      "Sizes to start from: nano (2 layers, 2 heads, 32 wide, block 32), char (4, 4, 128, 64), "
      "baby (6, 6, 384, 256), gpt2 (12, 12, 768, 1024); resnet-tiny, resnet18, resnet50, which "
      "train on images; evoformer-tiny (2 blocks, pairs 32 wide, 2 heads), evoformer-demo (4, 64, "
      "4), "
      "evoformer-af2, pairformer, pairmixer (48, 128, 4), which train on pairs of residues; "
      "module, a program's own, which hanji::train_model() trains.";
  key.get = [](const Config& c) -> Value {
    return std::ranges::find(preset_names(), c.model.preset) - preset_names().begin();
  };
  key.set = [](Config& c, const Value& v) {
    c.model.preset = preset_names()[static_cast<size_t>(std::get<int64_t>(v))];
  };
  return key;
}

std::vector<Key> model_keys() {
  return {
      preset_key(),
      integer(HANJI_KEY(model.layers, "Transformer blocks. auto: the preset's."), "layers",
              {1, 1024}, Auto::kYes),
      integer(HANJI_KEY(model.heads, "Attention heads; a divisor of the width."), "heads",
              {1, 1024}, Auto::kYes),
      rare(integer(HANJI_KEY(model.kv_heads,
                             "Heads of keys and values, each shared by a group of attention heads; "
                             "a divisor of model.heads. auto: one for each."),
                   "heads", {1, 1024}, Auto::kYes)),
      integer(
          HANJI_KEY(
              model.width,
              "Elements of the residual stream; for a resnet, channels of its first stage; for an "
              "evoformer, of a pair."),
          "elements", {1, 65536}, Auto::kYes),
      integer(HANJI_KEY(model.block, "Tokens of a sample, and the longest context."), "tokens",
              {1, 1 << 20}, Auto::kYes),
      integer(HANJI_KEY(model.vocabulary, "Distinct tokens. auto: those of the data."), "tokens",
              {2, 1 << 24}, Auto::kYes),
      real(HANJI_KEY(model.dropout,
                     "Probability of zeroing an activation in training; of an "
                     "evoformer, of the updates of pairs (AlphaFold: 0.25)."),
           {0, 0.99}),
      boolean(HANJI_KEY(model.tied, "The head shares the token embedding.")),
      rare(bytes(
          HANJI_KEY(
              model.chunk_bytes,
              "Memory of a rank for the logits of an evoformer's attention, and for its outer "
              "products: as many rows at a time as fit, at least one, and recomputed in "
              "backward. 0: all rows at once."),
          {0, kMaxOfAKey})),
      rare(text(HANJI_KEY(
          model.init,
          "A safetensors file with the parameters to begin with, under the names of the "
          "model; of an evoformer also under those of OpenFold's older checkpoints. Empty: "
          "random values by train.seed."))),
  };
}

std::vector<Key> batch_keys() {
  return {
      integer(HANJI_KEY(train.steps, "Optimizer steps."), "steps", {1, 1e12}),
      integer(HANJI_KEY(train.seed, "Seed of initial values, sample order and dropout."), "",
              {0, kMaxNumber}),
      integer(HANJI_KEY(train.global_batch, "Samples of one step, over all ranks."), "samples",
              {1, 1e9}),
      integer(HANJI_KEY(train.micro_batch,
                        "Maximum samples in one forward pass. auto: a rank's whole "
                        "share if memory allows, else the largest that fits."),
              "samples", {1, 1e9}, Auto::kYes),
      integer(HANJI_KEY(train.grain,
                        "Samples that are always computed together; the unit in which a "
                        "batch is split."),
              "samples", {1, 1e9}),
      reals(HANJI_KEY(train.split, "Share of each rank, in any scale. Empty: even."), {1e-9, 1e9}),
      choice(HANJI_KEY(train.bits,
                       "run: the same plan gives the same bits. stable: any plan gives the "
                       "same bits, by one forward and backward per grain. fast: sums may "
                       "follow an engine's own order.")),
      cuts(HANJI_KEY(
          train.cuts.features,
          "With stable, blocks in which features, heads and vocabulary are computed on "
          "any number of ranks, so that mesh.tp up to it changes no bit. Part of the job.")),
      cuts(HANJI_KEY(train.cuts.tokens,
                     "The same of a sample's tokens, over which gradients are summed, so that "
                     "mesh.cp and parallel.sequence change no bit, and of rows of pairs and "
                     "sequences, so that mesh.axial changes none. Needs train.grain = 1.")),
  };
}

std::vector<Key> optimizer_keys() {
  return {
      real(HANJI_KEY(train.learning_rate, "Maximum learning rate, after the warm-up."),
           {1e-12, 10}),
      real(HANJI_KEY(train.min_learning_rate, "Learning rate at the end of cosine and wsd."),
           {0, 10}),
      integer(HANJI_KEY(train.warmup_steps,
                        "Steps of linear warm-up to learning_rate. auto: a "
                        "tenth of the steps, at most 100."),
              "steps", {0, 1e12}, Auto::kYes),
      choice(HANJI_KEY(train.schedule,
                       "Learning rate after the warm-up: cosine; constant; "
                       "wsd, constant and then linear over the last fifth.")),
      real(HANJI_KEY(train.weight_decay, "Weight decay of AdamW, applied to matrices only."),
           {0, 10}),
      real(HANJI_KEY(train.beta1, "AdamW decay rate of the first moment."), {0, 0.999999}),
      real(HANJI_KEY(train.beta2, "AdamW decay rate of the second moment."), {0, 0.999999}),
      rare(real(
          HANJI_KEY(train.epsilon,
                    "Added by AdamW to the root of the second moment, which divides the update. "
                    "Far above gradients it leaves gradient descent with momentum."),
          {1e-16, 1e6})),
      real(HANJI_KEY(train.clip, "Maximum norm of all gradients. 0: no clipping."), {0, 1e9}),
      choice(HANJI_KEY(train.nan,
                       "If a loss or gradient is not finite, or no target of a step is valid: "
                       "stop, or skip the step, on all ranks.")),
  };
}

std::vector<Key> watch_keys() {
  return {
      integer(HANJI_KEY(train.evaluate_every, "Steps between evaluations. 0: only after the last."),
              "steps", {0, 1e12}),
      integer(HANJI_KEY(train.evaluate_batches, "Maximum global batches of one evaluation."),
              "batches", {1, 1e9}),
      integer(HANJI_KEY(train.log_every, "Steps between progress lines."), "steps", {1, 1e12}),
      text(
          HANJI_KEY(train.profile,
                    "Steps of which every operation is timed for the report and the trace, such as "
                    "\"steps 10-12\". Bits stay. Empty: none.")),
      integer(HANJI_KEY(checkpoint.every, "Steps between checkpoints. 0: only after the last."),
              "steps", {0, 1e12}),
      integer(HANJI_KEY(checkpoint.keep, "Checkpoints to keep, besides the best."), "checkpoints",
              {1, 1e6}),
  };
}

std::vector<Key> machine_keys() {
  return {
      choice(HANJI_KEY(compute.device,
                       "Device of the ranks: CPU cores, or one NVIDIA GPU each, with "
                       "libtorch's kernels."),
             kRefusedDevices),
      choice(HANJI_KEY(compute.gemm,
                       "Library of fp32 matmuls on CPUs. auto: the faster one, measured "
                       "once per machine.")),
      choice(HANJI_KEY(compute.attention,
                       "Kernel of attention: libtorch's flash, hanji's math, or hanji's by bf16 "
                       "tiles. auto: the fastest, measured once per machine.")),
      choice(HANJI_KEY(compute.dtype,
                       "Of activations and matmuls. With bf16, parameters, sums over ranks "
                       "and optimizer are float32."),
             kRefusedPrecisions),
      rare(choice(HANJI_KEY(
          compute.products,
          "Largest error of float32 matmuls on CPUs. highest: that of sums in float32. "
          "medium: that of one product of inputs rounded to bf16 with sums in float32, where "
          "a library has such matmuls and they are clearly faster; else as highest. The plan "
          "shows both errors and rates."))),
      boolean(HANJI_KEY(compute.slow_dtype,
                        "Accept a compute.dtype below float32 whose matmuls are slower than those "
                        "of float32, which is rejected otherwise.")),
      integer(HANJI_KEY(compute.threads, "Threads of each rank. auto: the cores of its mask."),
              "threads", {1, 1024}, Auto::kYes),
      boolean(HANJI_KEY(compute.recompute,
                        "Keep only the inputs of blocks and recompute the rest in backward: the "
                        "same bits, far less memory, about a third more matmuls.")),
      seconds(HANJI_KEY(comm.deadline, "Maximum wait for another rank."), {0.001, 1e7}),
      choice(HANJI_KEY(comm.engine,
                       "Engine of the ranks: shm, shared memory; gloo, sockets; mpi, the MPI "
                       "whose mpirun or srun has started them; nccl, for GPUs. On several hosts "
                       "the ranks of a host always use shared memory, and the engine connects "
                       "the hosts (for shm: Gloo). hierarchical: the same, rejected on one host. "
                       "auto: nccl with compute.device = cuda, else shm.")),
      bytes(HANJI_KEY(
                comm.bucket_bytes,
                "Gradients that are reduced together; with zero3 and hsdp those of a layer are."),
            {4096, kMaxOfAKey}),
      integer(HANJI_KEY(comm.check_every,
                        "Steps between comparisons of all replicas. 0: only at "
                        "the start."),
              "steps", {0, 1e12}),
      bytes(HANJI_KEY(comm.link_bytes_per_second,
                      "Rate of a host's network link in each direction, for the prediction. 0: "
                      "measured after rendezvous."),
            {0, kMaxOfAKey}),
      seconds(HANJI_KEY(comm.link_latency,
                        "Latency of a message between hosts, for the prediction. 0: measured "
                        "after rendezvous."),
              {0, 60}),
  };
}

std::vector<Key> parallel_keys() {
  return {
      choice(HANJI_KEY(parallel.data,
                       "How model state is sharded. ddp: every rank holds all of it. zero1: the "
                       "optimizer is sharded over all ranks; zero2: gradients too; "
                       "zero3: parameters too, layer by layer; the ranks of one host share one "
                       "copy of the parameters, so unsharding a layer moves no bytes; over several "
                       "hosts they gather them. hsdp: zero3 within groups of mesh.fsdp ranks; the "
                       "groups are replicas. "
                       "server: every rank holds a range of parameters and optimizer, to which the "
                       "others push gradients and from which they pull weights."),
             kRefusedShardings),
      rare(
          boolean(HANJI_KEY(parallel.share_memory,
                            "With zero3 and hsdp, ranks of a host share one copy of the "
                            "parameters. false: each rank gathers those of a layer, or of a stage, "
                            "from the shards."))),
      rare(
          choice(HANJI_KEY(parallel.reshard,
                           "With zero3 and hsdp, how long parameters stay whole. step: those of a "
                           "stage from its first forward to its last backward in a step. "
                           "micro_batch: those of a layer while it computes a micro-batch, forward "
                           "and again backward. auto: step with mesh.pp, or where data coordinates "
                           "have different numbers of micro-batches; else micro_batch."))),
      rare(boolean(HANJI_KEY(parallel.sequence,
                             "Ranks of mesh.tp cut the residual stream, norms and dropout by "
                             "tokens: all_gather and reduce_scatter in place of all_reduce."))),
      rare(choice(HANJI_KEY(parallel.moves,
                            "What ranks of mesh.tp exchange for each MLP. activations: each has a "
                            "part of its features. weights: each has a part of its rows, and "
                            "gathers the weights. auto: what takes less time by the rates measured "
                            "on this machine."))),
      rare(choice(HANJI_KEY(parallel.triangle,
                            "How ranks of mesh.axial multiply triangles. channels: both operands "
                            "move to parts by channels, so that bytes and memory divide by the "
                            "ranks. ring: parts of one operand pass through all ranks. gather: "
                            "one operand becomes whole on every rank. auto: what takes less time "
                            "by the rates measured on this machine and fits in memory; with stable "
                            "channels, which alone keep the order of sums."))),
      rare(choice(HANJI_KEY(parallel.context,
                            "How ranks of mesh.cp compute attention. ulysses: queries, keys and "
                            "values move to parts by heads, and back. ring: keys and values pass "
                            "through all ranks while blocks are multiplied. auto: ring with more "
                            "ranks than model.heads, ulysses with dropout, else what takes "
                            "less time by the rates measured on this machine."))),
  };
}

std::vector<Key> mesh_keys() {
  return {
      integer(HANJI_KEY(mesh.dp, "Ranks with the same state; with hsdp, groups of ranks."), "ranks",
              {1, base::kMaxRanks}, Auto::kYes),
      integer(HANJI_KEY(mesh.fsdp,
                        "Ranks over which state is sharded. auto: all; with hsdp on several hosts "
                        "the largest number that divides the ranks of each."),
              "ranks", {1, base::kMaxRanks}, Auto::kYes),
      cut_axis(HANJI_KEY(mesh.pp,
                         "Ranks that share out the layers, as stages of a pipeline, on one host "
                         "or several; on CPUs, with any parallel.data but server.")),
      cut_axis(HANJI_KEY(
          mesh.cp,
          "Ranks over which the tokens of each sample are sharded: with "
          "ulysses at most model.heads, with stable also train.cuts.tokens and model.kv_heads; "
          "GPTs on CPUs, with any parallel.data but server.")),
      cut_axis(HANJI_KEY(mesh.tp,
                         "Ranks over which the matmuls of a layer are sharded, at most "
                         "model.heads and model.kv_heads, with stable also train.cuts.features; "
                         "GPTs on CPUs.")),
      cut_axis(
          HANJI_KEY(mesh.axial,
                    "Ranks over which rows and columns of pairs are sharded, "
                    "instead of tp: at most data.residues and data.sequences, with stable also "
                    "train.cuts.tokens; evoformers on CPUs.")),
  };
}

std::vector<Key> pipeline_keys() {
  return {
      pipeline_schedule(
          "pipeline.schedule",
          "Order of the computations of mesh.pp, as drawn by `hanji simulate --schedule`: naive, "
          "gpipe, 1f1b, interleaved, bfs, zbh1, interleaved_zb, zbv or dualpipev, or a FILE.csv "
          "with "
          "a line per rank, which the plan keeps. Schedules that split backward compute the "
          "gradients of weights with those of inputs."),
      rare(integer(HANJI_KEY(pipeline.micro_batches,
                             "Micro-batches of each data coordinate in a step. auto: about four "
                             "for each rank of mesh.pp."),
                   "micro-batches", {1, 1 << 20}, Auto::kYes)),
      rare(integer(HANJI_KEY(pipeline.virtual_stages,
                             "Stages of each rank, for interleaved, interleaved_zb and bfs."),
                   "stages", {1, 64})),
      rare(reals(HANJI_KEY(pipeline.cut,
                           "The first layer of each stage except the first. Empty: stages take "
                           "about the same time."),
                 {1, 1e6})),
  };
}

std::vector<Key> offload_keys() {
  return {
      choice(HANJI_KEY(offload.optimizer,
                       "Storage of the moments of AdamW: memory, or an unlinked file that "
                       "is read and written while the update is computed. The same bits; "
                       "parallel.data = ddp on CPUs.")),
      text(HANJI_KEY(offload.folder,
                     "Folder of a local disk with room for offload.optimizer: 8 bytes per "
                     "parameter and rank.")),
  };
}

std::vector<Key> algorithm_keys() {
  constexpr std::string_view kDoc =
      "Algorithm of this routine: flat, direct or staged in shared memory, else one of `hanji "
      "simulate`'s that keeps the order of sums. Empty: the cheapest in shared memory, a fixed one "
      "between processes.";
  std::vector<Key> keys;
  for (const std::string_view name :
       {"comm.algorithm.all_reduce", "comm.algorithm.reduce", "comm.algorithm.broadcast",
        "comm.algorithm.all_gather", "comm.algorithm.reduce_scatter", "comm.algorithm.gather",
        "comm.algorithm.scatter", "comm.algorithm.all_to_all"}) {
    keys.push_back(text_in(&CommConfig::algorithm, name, kDoc));
  }
  return keys;
}

std::vector<Key> nccl_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NcclVariable& one : nccl_variables()) {
      all.push_back("comm.nccl." + std::string(one.name));
    }
    return all;
  }();
  std::vector<Key> keys;
  for (size_t i = 0; i < names.size(); ++i) {
    keys.push_back(rare(text_in(&CommConfig::nccl, names[i], nccl_variables()[i].doc)));
  }
  return keys;
}

std::vector<Key> build_schema() {
  std::vector<Key> keys;
  for (auto group : {run_keys, model_keys, data_keys, image_keys, loader_keys, pair_keys,
                     batch_keys, optimizer_keys, watch_keys, machine_keys, parallel_keys, mesh_keys,
                     pipeline_keys, offload_keys, algorithm_keys, nccl_keys}) {
    for (Key& key : group()) keys.push_back(std::move(key));
  }
  return keys;
}

constexpr std::array<std::string_view, 11> kTables = {
    "run",  "model",    "data", "train",    "checkpoint", "compute",
    "comm", "parallel", "mesh", "pipeline", "offload"};

}  // namespace
}  // namespace keys

std::span<const Key> schema() {
  static const std::vector<Key> all = keys::build_schema();
  return all;
}

std::span<const Refusal> refused_keys() {
  static constexpr std::array kRefused = {
      Refusal{"mesh.ep", "no model here has experts that ranks could share out; leave it out"}};
  return kRefused;
}

std::span<const std::string_view> tables() { return keys::kTables; }

const Key* find_key(std::string_view name) {
  for (const Key& key : schema()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace hanji::plan
