#include "hanji/comm/c10d/store.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace hanji::comm::c10d {
namespace {

using Bytes = std::vector<uint8_t>;

class KeyValueStore final : public ::c10d::Store {
 public:
  explicit KeyValueStore(std::shared_ptr<KeyValue> keys) : keys_(std::move(keys)) {}

  c10::intrusive_ptr<::c10d::Store> clone() override {
    return c10::make_intrusive<KeyValueStore>(keys_);
  }
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    keys_->set(key, {value.begin(), value.end()});
  }
  Bytes get(const std::string& key) override {
    const std::string value = keys_->get(key, timeout_);
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t amount) override { return keys_->add(key, amount); }
  using Store::compareSet;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    const std::string value = keys_->compare_set(key, {expected.begin(), expected.end()},
                                                 {desired.begin(), desired.end()});
    return {value.begin(), value.end()};
  }
  bool deleteKey(const std::string& key) override { return keys_->remove(key); }
  bool check(const std::vector<std::string>& keys) override { return keys_->check(keys); }
  int64_t getNumKeys() override { return keys_->num_keys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    keys_->wait(keys, timeout);
  }

 private:
  std::shared_ptr<KeyValue> keys_;
};

}  // namespace

c10::intrusive_ptr<::c10d::Store> make_store(std::shared_ptr<KeyValue> keys) {
  return c10::make_intrusive<KeyValueStore>(std::move(keys));
}

}  // namespace hanji::comm::c10d
