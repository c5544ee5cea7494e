#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "hanji/plan/config.h"

namespace hanji::plan {

template <class... Word>
constexpr std::array<std::string_view, sizeof...(Word)> words(Word... all) {
  return {all...};
}

/// The words of an enumeration, in the order of its enumerators.
template <class E>
inline constexpr auto kWords = nullptr;

template <>
inline constexpr auto kWords<TokenFormat> = words("auto", "nanogpt", "llmc", "megatron");
template <>
inline constexpr auto kWords<VocabularyKind> = words("char", "byte");
template <>
inline constexpr auto kWords<Images> = words("none", "generated");
template <>
inline constexpr auto kWords<LearningRateSchedule> = words("cosine", "constant", "wsd");
template <>
inline constexpr auto kWords<Bits> = words("run", "fast", "stable");
template <>
inline constexpr auto kWords<NanPolicy> = words("stop", "skip");
template <>
inline constexpr auto kWords<Place> = words("memory", "file");
template <>
inline constexpr auto kWords<Gemm> = base::kGemmNames;
template <>
inline constexpr auto kWords<Attention> = base::kAttentionNames;
template <>
inline constexpr auto kWords<Precision> = base::kPrecisionNames;
template <>
inline constexpr auto kWords<Device> = words("cpu", "cuda");
template <>
inline constexpr auto kWords<Engine> = words("auto", "shm", "gloo", "mpi", "hierarchical", "nccl");

template <>
inline constexpr auto kWords<Sharding> = words("ddp", "server", "zero1", "zero2", "zero3", "hsdp");

template <class E>
std::string_view word_of(E value) {
  return kWords<E>[static_cast<size_t>(value)];
}

template <class E>
std::optional<E> from_word(std::string_view word) {
  for (size_t i = 0; i < kWords<E>.size(); ++i) {
    if (kWords<E>[i] == word) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace hanji::plan
