#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hanji/base/kernel_choice.h"
#include "hanji/layout/axial.h"
#include "hanji/layout/context.h"
#include "hanji/schedule/pipeline_schedule.h"

namespace hanji::plan {

using base::Attention;
using base::Gemm;
using base::KernelChoice;
using base::Precision;
using base::Products;
using base::WeightGradient;

/// The words of an enumeration, in the order of its enumerators: as a configuration, a plan and its
/// table have them. nullptr: it has none.
template <class E>
inline constexpr auto kWords = nullptr;

template <class... Word>
constexpr std::array<std::string_view, sizeof...(Word)> words(Word... all) {
  return {all...};
}

/// The word of an enumerator: "cosine", "bf16".
template <class E>
requires requires { kWords<E>.size(); }
constexpr std::string_view name_of(E value) { return kWords<E>[static_cast<size_t>(value)]; }

template <>
inline constexpr auto kWords<Gemm> = base::kGemmNames;
template <>
inline constexpr auto kWords<Attention> = base::kAttentionNames;
template <>
inline constexpr auto kWords<WeightGradient> = base::kWeightGradientNames;
template <>
inline constexpr auto kWords<Precision> = base::kPrecisionNames;
template <>
inline constexpr auto kWords<Products> = base::kProductsNames;

enum class TokenFormat : uint8_t { kAuto, kNanoGpt, kLlmC, kMegatron };
template <>
inline constexpr auto kWords<TokenFormat> = words("auto", "nanogpt", "llmc", "megatron");

enum class VocabularyKind : uint8_t { kChar, kByte };
template <>
inline constexpr auto kWords<VocabularyKind> = words("char", "byte");

enum class Images : uint8_t { kNone, kGenerated };
template <>
inline constexpr auto kWords<Images> = words("none", "generated");

enum class Pairs : uint8_t { kNone, kContacts, kPaths, kDistances };
template <>
inline constexpr auto kWords<Pairs> = words("none", "contacts", "paths", "distances");
/// Else samples are states of pairs.
constexpr bool has_sequences(Pairs pairs) { return pairs == Pairs::kContacts; }

enum class SampleOrder : uint8_t {
  kRandom,
  kSequential,
  kQuasi,  ///< Random, from few pages of the file at a time.
  kFfcv,   ///< numpy.random.default_rng(seed + epoch).permutation: FFCV's OrderOption.RANDOM.
  kTorch,  ///< torch.randperm of a generator with seed + epoch: DistributedSampler's.
};
template <>
inline constexpr auto kWords<SampleOrder> = words("random", "sequential", "quasi", "ffcv", "torch");

/// Who keeps the pages of a file in memory.
enum class FileCache : uint8_t { kOs, kProcess };
template <>
inline constexpr auto kWords<FileCache> = words("os", "process");

/// What becomes of an epoch's last samples, which fill no global batch.
enum class EpochEnd : uint8_t {
  kContinue,  ///< The batch goes on with the next epoch.
  kPad,       ///< The batch is filled with the epoch's first samples.
  kDrop,      ///< They are left out.
};
template <>
inline constexpr auto kWords<EpochEnd> = words("continue", "pad", "drop");

enum class CorruptPolicy : uint8_t { kStop, kSkip };
template <>
inline constexpr auto kWords<CorruptPolicy> = words("stop", "skip");

enum class LearningRateSchedule : uint8_t { kCosine, kConstant, kWarmupStableDecay };
template <>
inline constexpr auto kWords<LearningRateSchedule> = words("cosine", "constant", "wsd");

enum class Bits : uint8_t { kRun, kFast, kStable };
template <>
inline constexpr auto kWords<Bits> = words("run", "fast", "stable");

enum class NanPolicy : uint8_t { kStop, kSkip };
template <>
inline constexpr auto kWords<NanPolicy> = words("stop", "skip");

enum class Device : uint8_t { kCpu, kCuda };
template <>
inline constexpr auto kWords<Device> = words("cpu", "cuda");

enum class Place : uint8_t { kMemory, kFile };
template <>
inline constexpr auto kWords<Place> = words("memory", "file");

enum class Moves : uint8_t { kAuto, kActivations, kWeights };
template <>
inline constexpr auto kWords<Moves> = words("auto", "activations", "weights");

using layout::TriangleWay;
template <>
inline constexpr auto kWords<TriangleWay> = layout::kTriangleWayNames;

/// How long the parameters of a stage stay whole, where they are sharded.
enum class Reshard : uint8_t {
  kAuto,
  kStep,        ///< From its first forward in a step to its last backward.
  kMicroBatch,  ///< While each of its layers computes a micro-batch.
};
template <>
inline constexpr auto kWords<Reshard> = words("auto", "step", "micro_batch");

using layout::ContextWay;
template <>
inline constexpr auto kWords<ContextWay> = layout::kContextWayNames;

enum class Engine : uint8_t { kAuto, kShm, kGloo, kMpi, kHierarchical, kNccl };
template <>
inline constexpr auto kWords<Engine> = words("auto", "shm", "gloo", "mpi", "hierarchical", "nccl");

/// What ranks that see different samples keep of the model's states.
enum class Sharding : uint8_t {
  kReplicas,  ///< "ddp": everything on every rank.
  kServer,    ///< "server": servers hold parameters and optimizer, workers parameters, gradients.
  kZero1,     ///< "zero1": the optimizer's state is cut among the ranks,
  kZero2,     ///< "zero2": gradients too,
  kZero3,     ///< "zero3": parameters too.
  kHybrid,    ///< "hsdp": as zero3 within groups, which are replicas of each other.
};
template <>
inline constexpr auto kWords<Sharding> = words("ddp", "server", "zero1", "zero2", "zero3", "hsdp");

using schedule::PipelineKind;

}  // namespace hanji::plan
