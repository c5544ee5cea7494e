#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hanji::comm {

/// Keys and values that every rank of every host reaches, as engines between hosts need them to
/// exchange addresses.
///
/// Errors  throws Error; kTimeout for a key that nobody sets in time.
/// Thread  any.
class KeyValue {
 public:
  virtual ~KeyValue() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until all of them are set.
  virtual void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) = 0;
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to a decimal number, 0 before; gives the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Sets the value if it was `expected`, empty for none; gives what holds then.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// True if there was such a key.
  virtual bool remove(const std::string& key) = 0;
  virtual int64_t num_keys() = 0;
};

}  // namespace hanji::comm
