#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#define GLOO_STORE_HAS_STORE_V2

/// Stands in for Gloo's own header, which the wheels of libtorch do not ship. ProcessGroupGloo.hpp
/// holds Gloo objects through pointers only, so names are enough.
/// libtorch derives its own store from this one; we never make one.
namespace gloo::rendezvous {
struct Store {
  using Key = std::string;
  using Bytes = std::vector<char>;
  using Keys = std::vector<std::string>;
  virtual ~Store() = default;
  virtual void set(const Key& key, const Bytes& value) = 0;
  virtual Bytes get(const Key& key) = 0;
  virtual void wait(const Keys& keys) = 0;
  virtual void wait(const Keys& keys, const std::chrono::milliseconds& timeout) = 0;
  virtual bool has_v2_support() = 0;
  virtual std::vector<Bytes> multi_get(const Keys& keys) = 0;
  virtual void multi_set(const Keys& keys, const std::vector<Bytes>& values) = 0;
  virtual void append(const Key& key, const Bytes& value) = 0;
  virtual int64_t add(const Key& key, int64_t value) = 0;
};
}  // namespace gloo::rendezvous
