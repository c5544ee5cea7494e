#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/model_spec.h"

namespace hanji::plan {

/// What a plan may take of the memory that is free: the rest is for the page cache and what the launcher
/// takes while it measures.
inline constexpr double kUsableMemory = 0.8;

/// Of the bytes that a rank's passes allocate and free, what malloc holds beside the most that they use at
/// once: it keeps what is freed, in pieces that the next tensors do not always fit; and what libraries keep
/// for their kernels.
/// Source  jobs of GPTs and Evoformers on two ranks held 0.27 to 0.46 of their activations more, a ResNet
///         of 34 MiB of activations 0.8.
inline constexpr double kKeptByMalloc = 0.35;
inline constexpr int64_t kKeptByLibraries = int64_t{8} << 20;

/// Of a parameter, of its gradient and of each of its moments: bf16 keeps them in float32.
constexpr int64_t parameter_bytes(Precision precision) {
  return precision == Precision::kFloat64 ? 8 : 4;
}

/// One tensor, or all like it, that the forward pass keeps for the backward pass.
struct SavedTensor {
  std::string name;      ///< e.g. "layer.qkv".
  int64_t count = 1;     ///< How many of them live at once.
  int64_t elements = 0;  ///< Of one of them.
  int64_t element_bytes = 4;
  int64_t bytes() const { return count * elements * element_bytes; }
};

/// What the activations depend on besides the model.
struct ActivationOptions {
  int64_t micro_batch = 1;
  Precision precision = Precision::kFloat32;
  Device device = Device::kCpu;
  bool recompute = false;  ///< Blocks keep their inputs alone.
  bool casts = true;       ///< Weights are float32, and copied for products under bf16.
};

/// Every tensor that autograd holds when the forward pass of models/gpt ends, each storage once.
///
/// Result  with N = micro_batch * T tokens, without dropout, elements of N*C:
///         L * (2 stream + 2 norm outputs + 3 qkv + 1 attention + 4 up + 4 gelu) + 2
///         (with fewer heads of keys and values 1 + 2 K / C instead of 3);
///         and L * N * heads log sums, 2 * (2L+1) * N statistics, N * V logits.
///         With recompute L streams, L - 1 outputs of branches, the last norm and the logits.
/// Source  what the operations of compute/ save: each row of memory.cpp names its owner.
std::vector<SavedTensor> saved_tensors(const ModelSpec& model, const ActivationOptions& options);

/// What the backward pass holds beside the saved tensors: at its highest point in the head, and in the
/// last block.
int64_t workspace_in_head(const ModelSpec& model, const ActivationOptions& options);
int64_t workspace_in_block(const ModelSpec& model, const ActivationOptions& options);

/// In the attention of a block, beside what it and those before it have kept and the kernel's scratch:
/// gradients of the stream, of the attention's output and of qkv, less what its MLP has given up.
int64_t beside_attention(const ModelSpec& model, const ActivationOptions& options);

/// Bytes of one category on one rank.
struct MemoryLine {
  std::string category;
  int64_t bytes = 0;
  bool operator==(const MemoryLine&) const = default;
};

int64_t total_bytes(const std::vector<MemoryLine>& lines);
/// Bytes of the line of that category; 0 without it.
int64_t line_bytes(const std::vector<MemoryLine>& lines, std::string_view category);

/// What a rank has in memory before its first tensor.
struct ProcessMemory {
  int64_t private_bytes = 0;  ///< Its own, as loading libtorch writes it; 0: not known.
  int64_t library_bytes = 0;  ///< Bytes of mapped files, which the ranks of a host share.
  bool operator==(const ProcessMemory&) const = default;
};

/// How a run reads and writes moments in a file: pieces of so many elements, some of them in memory.
constexpr int64_t kOffloadPieceElements = 1 << 18;
constexpr int kOffloadWindows = 3;
/// Of a rank's memory, for two moments of so many elements in a file.
int64_t offload_window_bytes(int64_t elements, int64_t element_bytes);

/// The most that a rank copies at a time of the state that it saves: all, so that the training goes on
/// beside the disk, but where moments lie in a file because memory would not hold them.
int64_t most_copied(const OffloadConfig& offload);

/// Whether a category lies in the host's memory where ranks compute on GPUs, too.
bool stays_on_host(std::string_view category);
/// Without those.
int64_t device_bytes(const std::vector<MemoryLine>& lines);

}  // namespace hanji::plan
