#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/choices.h"
#include "hanji/plan/image_stages.h"

namespace hanji::plan {

/// An integer key that is not set and that make_plan() decides. A Plan's config has none.
inline constexpr int64_t kAuto = -1;

struct RunConfig {
  int64_t ranks = kAuto;  ///< Auto: one per usable physical core.
  std::string out;        ///< Folder of the run; empty: a new one in runs/.
};

struct ModelConfig {
  std::string preset = "char";  ///< One of preset_names(); selects the family of models.
  int64_t layers = kAuto;       ///< Auto here and below: the preset's.
  int64_t heads = kAuto;
  int64_t kv_heads = kAuto;  ///< Auto: as many as heads.
  int64_t width = kAuto;
  int64_t block = kAuto;       ///< Tokens of a sample.
  int64_t vocabulary = kAuto;  ///< Auto: what the data needs.
  double dropout = 0.0;
  bool tied = true;  ///< The head shares the token embedding.
  int64_t chunk_bytes =
      0;  ///< Most that attention and outer products of pairs hold at a time; 0: all rows.
  std::string init;  ///< A safetensors file with the parameters to begin with; empty: none.
};

struct DataConfig {
  std::string text;    ///< File or folder; empty with empty tokens: the embedded text.
  std::string tokens;  ///< File of token ids.
  TokenFormat format = TokenFormat::kAuto;
  VocabularyKind vocabulary = VocabularyKind::kChar;
  double validation_fraction = 0.1;
  Images images = Images::kNone;
  int64_t image_size = 32;  ///< Pixels of a side.
  int64_t classes = 10;
  int64_t image_count = 50000;           ///< Training and validation part together.
  std::string files;                     ///< A .beton file of labelled images.
  std::string stage{kUsualImageStages};  ///< As parse_image_stages() reads.
  CorruptPolicy corrupt = CorruptPolicy::kStop;
  Pairs pairs = Pairs::kNone;
  int64_t residues = 24;
  int64_t sequences = 64;   ///< Of kContacts.
  int64_t systems = 20000;  ///< Training and validation part together.
  SampleOrder order = SampleOrder::kRandom;
  FileCache cache = FileCache::kOs;
  /// Pages of a file: in memory with FileCache::kProcess, and that the order quasi draws from at a time.
  int64_t pages = 64;
  EpochEnd epoch_end = EpochEnd::kContinue;
  std::string weights;  ///< "balanced", or a float field of data.files; empty: each sample once.
  int64_t workers = kAuto;  ///< Threads of a rank that read; auto here and below: choose_reading().
  int64_t prefetch = kAuto;                     ///< Steps that they read ahead.
  int64_t prefetch_bytes = int64_t{256} << 20;  ///< Most of what an automatic prefetch holds.
};

/// Blocks in which stable computes what a mesh may cut: of the job, whatever the mesh. 1: whole products.
struct CutsConfig {
  int64_t features = 1;
  int64_t tokens = 1;
};

/// Batches are in samples of ModelConfig::block tokens; `steps` are optimizer steps.
struct TrainConfig {
  int64_t steps = 1000;
  int64_t seed = 1;
  int64_t global_batch = 16;
  int64_t micro_batch = kAuto;  ///< A cap; auto: the whole share of a rank, if memory allows.
  int64_t grain = 1;
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  int64_t warmup_steps = kAuto;  ///< Auto: a tenth of the steps, at most 100.
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double clip = 1.0;  ///< Largest global gradient norm; 0: no clipping.
  Bits bits = Bits::kRun;
  CutsConfig cuts;
  std::vector<double> split;      ///< Share of each rank; empty: even.
  int64_t evaluate_every = 250;   ///< Steps; 0: only after the last.
  int64_t evaluate_batches = 20;  ///< Global batches of one evaluation.
  NanPolicy nan = NanPolicy::kStop;
  int64_t log_every = 10;
  std::string
      profile;  ///< Steps whose operations are timed, as profiled_steps() reads; empty: none.
};

struct CheckpointConfig {
  int64_t every = 500;  ///< Steps; 0: only after the last.
  int64_t keep = 3;
};

struct ComputeConfig {
  Device device = Device::kCpu;
  Gemm gemm = Gemm::kAuto;  ///< Auto here and below: measured once per machine.
  Attention attention = Attention::kAuto;
  Precision dtype = Precision::kFloat32;
  Products products = Products::kHighest;  ///< The largest error of float32 products.
  bool slow_dtype = false;  ///< Accepts a dtype below float32 whose matmuls are slower.
  int64_t threads = kAuto;  ///< Per rank; auto: the cores of its mask.
  bool recompute = false;   ///< Blocks keep only their inputs; backward recomputes the rest.
};

using Texts = std::map<std::string, std::string, std::less<>>;

struct CommConfig {
  double deadline = 300;          ///< Seconds.
  Engine engine = Engine::kAuto;  ///< Auto: engine_of().
  int64_t bucket_bytes = 25 << 20;
  int64_t check_every = 100;  ///< Steps between comparisons of all replicas; 0: only at the start.
  int64_t link_bytes_per_second =
      0;                    ///< Of a host's link to the others; 0 here and below: measured.
  double link_latency = 0;  ///< Seconds.
  Texts algorithm;          ///< By routine; of a routine without one the cheapest.
  Texts nccl;               ///< Variables of nccl_variables().
};

/// How model state is sharded.
struct ParallelConfig {
  Sharding data = Sharding::kReplicas;
  bool share_memory = true;  ///< Ranks of a host compute with one copy of sharded parameters.
  Reshard reshard = Reshard::kAuto;  ///< Auto: decide_reshard().
  bool sequence = false;             ///< Ranks of tp cut the residual stream by tokens.
  TriangleWay triangle =
      TriangleWay::kAuto;  ///< How ranks of axial multiply triangles; auto: decide_moves().
  ContextWay context = ContextWay::kAuto;  ///< How ranks of cp attend; auto: decide_context().
  Moves moves = Moves::kAuto;  ///< What ranks of tp exchange for an MLP; auto: decide_moves().
};

/// Degrees of the mesh, outer to inner; auto: the ranks that the other axes leave, by parallel.data.
struct MeshConfig {
  int64_t pp = 1;        ///< Stages of layers.
  int64_t dp = kAuto;    ///< Ranks, or groups of them, that have the same state.
  int64_t fsdp = kAuto;  ///< Ranks over which one state is sharded.
  int64_t cp = 1;        ///< Parts of a sample's tokens.
  int64_t tp = 1;        ///< Parts of a layer's products.
  int64_t axial = 1;     ///< Parts of a pair's rows and columns, in tp's place.
};

/// An axis of the mesh and its key.
struct AxisKey {
  std::string_view axis;
  std::string_view key;
  int64_t MeshConfig::*degree;
};

/// In the order of layout::kAxisNames.
inline constexpr std::array<AxisKey, 6> kAxisKeys = {{{"pp", "mesh.pp", &MeshConfig::pp},
                                                      {"dp", "mesh.dp", &MeshConfig::dp},
                                                      {"fsdp", "mesh.fsdp", &MeshConfig::fsdp},
                                                      {"cp", "mesh.cp", &MeshConfig::cp},
                                                      {"tp", "mesh.tp", &MeshConfig::tp},
                                                      {"axial", "mesh.axial", &MeshConfig::axial}}};

/// The number of ranks with the same samples: the product of all degrees except dp and fsdp. At most
/// 2^40: more ranks than any run has.
constexpr int64_t ranks_per_data_coordinate(const MeshConfig& mesh) {
  int64_t product = 1;
  for (const int64_t degree : {mesh.pp, mesh.cp, mesh.tp, mesh.axial}) {
    product = std::min(product * degree, int64_t{1} << 40);
  }
  return product;
}

/// How the ranks of mesh.pp share a step out.
struct PipelineConfig {
  PipelineKind schedule = PipelineKind::k1F1B;
  /// Of kUser: what schedule::pipeline_from_csv() reads; until load_config() has read it, a file's name.
  std::string lines = {};
  int64_t micro_batches = kAuto;  ///< Of a data coordinate; auto: four per rank of mesh.pp.
  int64_t virtual_stages = 1;  ///< Stages of a rank, in schedules that visit ranks several times.
  std::vector<double> cut;     ///< The first layer of each stage but stage 0; empty: by seconds.
};

/// State in a file on a disk instead of in memory.
struct OffloadConfig {
  Place optimizer = Place::kMemory;
  std::string folder;  ///< Of a local disk, for unlinked files.
};

/// Every key of a run, typed. Defaults are the default run: a small GPT on the embedded text.
struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  CheckpointConfig checkpoint;
  ComputeConfig compute;
  CommConfig comm;
  ParallelConfig parallel;
  MeshConfig mesh;
  PipelineConfig pipeline;
  OffloadConfig offload;
};

/// The engine between the ranks: the configured one, else shared memory for ranks on CPUs and NCCL for
/// ranks on GPUs.
Engine engine_of(const Config& config);

}  // namespace hanji::plan
