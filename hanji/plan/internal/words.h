#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "hanji/plan/config.h"

namespace hanji::plan {

/// The words of an enumeration, in the order of its enumerators.
template <class E>
struct Words;

template <>
struct Words<TokenFormat> {
  static constexpr std::array<std::string_view, 4> list = {"auto", "nanogpt", "llmc", "megatron"};
};
template <>
struct Words<VocabularyKind> {
  static constexpr std::array<std::string_view, 2> list = {"char", "byte"};
};
template <>
struct Words<Images> {
  static constexpr std::array<std::string_view, 2> list = {"none", "generated"};
};
template <>
struct Words<LearningRateSchedule> {
  static constexpr std::array<std::string_view, 3> list = {"cosine", "constant", "wsd"};
};
template <>
struct Words<Bits> {
  static constexpr std::array<std::string_view, 3> list = {"run", "fast", "stable"};
};
template <>
struct Words<NanPolicy> {
  static constexpr std::array<std::string_view, 2> list = {"stop", "skip"};
};
template <>
struct Words<Place> {
  static constexpr std::array<std::string_view, 2> list = {"memory", "file"};
};
template <>
struct Words<Gemm> {
  static constexpr auto list = base::kGemmNames;
};
template <>
struct Words<Attention> {
  static constexpr auto list = base::kAttentionNames;
};
template <>
struct Words<Precision> {
  static constexpr auto list = base::kPrecisionNames;
};
template <>
struct Words<Device> {
  static constexpr std::array<std::string_view, 2> list = {"cpu", "cuda"};
};
template <>
struct Words<Engine> {
  static constexpr std::array<std::string_view, 6> list = {"auto", "shm",          "gloo",
                                                           "mpi",  "hierarchical", "nccl"};
};

template <>
struct Words<Sharding> {
  static constexpr std::array<std::string_view, 6> list = {"ddp",   "server", "zero1",
                                                           "zero2", "zero3",  "hsdp"};
};

template <class E>
std::string_view word_of(E value) {
  return Words<E>::list[static_cast<size_t>(value)];
}

template <class E>
std::optional<E> from_word(std::string_view word) {
  for (size_t i = 0; i < Words<E>::list.size(); ++i) {
    if (Words<E>::list[i] == word) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace hanji::plan
