#include "hanji/launch/store.h"

#include <fmt/format.h>

#include <charconv>

#include "hanji/launch/control_plane/client.h"

namespace hanji::launch {
namespace {

using Texts = std::vector<std::string>;

/// The server answers numbers as text, as they lie in the store.
Result<int64_t> number_of(const Result<std::string>& answer) {
  if (!answer.ok()) return answer.status();
  int64_t value = 0;
  const char* last = answer->data() + answer->size();
  const auto [end, error] = std::from_chars(answer->data(), last, value);
  if (error == std::errc() && end == last) return value;
  return base::corrupt(fmt::format("the store answered '{}' instead of a number", *answer));
}

Result<bool> truth_of(const Result<std::string>& answer) {
  if (!answer.ok()) return answer.status();
  return *answer == "1";
}

/// The server's words for a request taken back are what was missing.
Status name_missing(const Status& status, std::string_view what) {
  if (status.code() != Code::kTimeout) return status;
  return base::timeout(fmt::format("{}: {}", what, status.message()));
}

}  // namespace

Store::Store(std::unique_ptr<Client> client) : client_(std::move(client)) {}
Store::~Store() = default;

Result<std::shared_ptr<Store>> Store::connect(StoreOptions options) {
  HANJI_ASSIGN_OR_RETURN(auto client, Client::connect(std::move(options)));
  return std::shared_ptr<Store>(new Store(std::move(client)));
}

Status Store::set(const std::string& key, const std::string& value) {
  return client_->call({.operation = Operation::kSet, .texts = {key, value}}).status();
}

Result<std::string> Store::get(const std::string& key, base::Deadline deadline) {
  auto answer = client_->call({.operation = Operation::kGet, .texts = {key}}, deadline);
  if (!answer.ok()) return name_missing(answer.status(), "nobody set the key in time");
  return answer;
}

void Store::watch(const std::string& key, std::function<void(const std::string&)> watcher) {
  client_->watch({.operation = Operation::kGet, .texts = {key}}, std::move(watcher));
}

void Store::watch_all(std::vector<std::string> keys, std::function<void()> watcher) {
  client_->watch({.operation = Operation::kWait, .texts = std::move(keys)},
                 [watcher = std::move(watcher)](const std::string&) { watcher(); });
}

void Store::propose(const std::string& key, const std::string& value) {
  client_->watch({.operation = Operation::kCompareSet, .texts = {key, "", value}},
                 [](const std::string&) {});
}

Result<int64_t> Store::add(const std::string& key, int64_t amount) {
  return number_of(client_->call({.operation = Operation::kAdd, .number = amount, .texts = {key}}));
}

Result<int64_t> Store::append(const std::string& key, const std::string& value) {
  return number_of(client_->call({.operation = Operation::kAppend, .texts = {key, value}}));
}

Result<std::string> Store::compare_set(const std::string& key, const std::string& expected,
                                       const std::string& desired) {
  return client_->call({.operation = Operation::kCompareSet, .texts = {key, expected, desired}});
}

Status Store::wait(std::span<const std::string> keys, base::Deadline deadline) {
  if (keys.empty()) return {};
  const Request request{.operation = Operation::kWait, .texts = Texts(keys.begin(), keys.end())};
  return name_missing(client_->call(request, deadline).status(), "nobody set these keys in time");
}

Result<bool> Store::check(std::span<const std::string> keys) {
  if (keys.empty()) return true;
  return truth_of(
      client_->call({.operation = Operation::kCheck, .texts = Texts(keys.begin(), keys.end())}));
}

Result<bool> Store::remove(const std::string& key) {
  return truth_of(client_->call({.operation = Operation::kRemove, .texts = {key}}));
}

Result<int64_t> Store::num_keys() {
  return number_of(client_->call({.operation = Operation::kCount, .texts = {}}));
}

Status Store::barrier(const std::string& name, int index, int size, base::Deadline deadline) {
  if (index < 0 || size < 1) {
    return base::invalid_argument(fmt::format("barrier '{}': index {} of {}", name, index, size));
  }
  const int64_t place = int64_t{size} << 32 | index;
  const Status status =
      client_->call({.operation = Operation::kBarrier, .number = place, .texts = {name}}, deadline)
          .status();
  return name_missing(status, fmt::format("barrier '{}' of {}: missing are", name, size));
}

const std::string& Store::local_address() const { return client_->local_address(); }

}  // namespace hanji::launch
