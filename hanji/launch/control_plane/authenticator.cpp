#include "hanji/launch/control_plane/authenticator.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hanji::launch {
namespace {

constexpr size_t kMaxReasons = 256;

bool is_power_of_ten(int64_t count) {
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

}  // namespace

void Authenticator::accept(base::Fd socket) {
  auto from = base::peer_place(socket.get());
  if (!from.ok()) return;  // Gone already.
  if (pending_.size() >= options_.max_pending) evict();
  Pending& pending = pending_.emplace_back();
  pending.socket = std::move(socket);
  pending.from = *std::move(from);
  pending.deadline = base::Deadline::after(options_.greeting_time);
}

/// The oldest connection of the address that has most of them.
void Authenticator::evict() {
  std::map<std::string, int> counts;
  for (const Pending& pending : pending_) ++counts[pending.from.host];
  const auto busiest = std::max_element(
      counts.begin(), counts.end(),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  const auto oldest = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return pending.from.host == busiest->first;
  });
  refuse(oldest->from, fmt::format("more than {} connections without a proof of the token",
                                   options_.max_pending));
  pending_.erase(oldest);
}

void Authenticator::append_polls(std::vector<pollfd>& polls) const {
  for (const Pending& pending : pending_) polls.push_back({pending.socket.get(), POLLIN, 0});
}

std::vector<Authenticator::AuthenticatedPeer> Authenticator::take() {
  std::vector<AuthenticatedPeer> peers;
  std::erase_if(pending_, [&](Pending& pending) {
    const Step step = advance(pending);
    if (step == Step::kProved) {
      peers.push_back({std::move(pending.socket), pending.from, pending.transcript});
    }
    return step != Step::kWaits;
  });
  return peers;
}

void Authenticator::refuse(const base::HostPort& from, const std::string& why) {
  ++num_refused_;
  std::string kind = from.host + " " + why;
  if (told_.size() >= kMaxReasons && !told_.contains(kind)) kind = "others";
  const int64_t count = ++told_[kind];
  if (!options_.on_refused || !is_power_of_ten(count)) return;
  options_.on_refused(fmt::format("refused a connection from {}: {}{}", base::to_text(from), why,
                                  count > 1 ? fmt::format(" ({} times)", count) : ""));
}

/// As far as the bytes go that have come.
Authenticator::Step Authenticator::advance(Pending& pending) {
  if (!pending.challenged) {
    const Step step = read(pending, sizeof(Hello));
    if (step != Step::kProved) return step;
    if (challenge(pending) == Step::kRefused) return Step::kRefused;
  }
  const Step step = read(pending, sizeof(base::Digest));
  if (step != Step::kProved) return step;
  if (base::equal_secrets(pending.input, pending.transcript.client_proof(options_.token))) {
    return Step::kProved;
  }
  refuse(pending.from, "its proof is of another token, or of another connection's words");
  return Step::kRefused;
}

/// Keeps the hello unread and answers with a nonce.
Authenticator::Step Authenticator::challenge(Pending& pending) {
  std::memcpy(&pending.transcript.hello, pending.input.data(), sizeof(Hello));
  pending.input.clear();
  pending.challenged = true;
  const bool drawn = base::fill_random(pending.transcript.server_nonce).ok();
  const Nonce& nonce = pending.transcript.server_nonce;
  const ssize_t sent =
      drawn ? ::send(pending.socket.get(), nonce.data(), nonce.size(), MSG_NOSIGNAL) : -1;
  if (sent == static_cast<ssize_t>(nonce.size())) return Step::kWaits;
  refuse(pending.from, "it left before it proved the token");
  return Step::kRefused;
}

/// kProved once `size` bytes of this step are there.
Authenticator::Step Authenticator::read(Pending& pending, size_t size) {
  const size_t before = pending.input.size();
  pending.input.resize(size);
  const ssize_t got = ::recv(pending.socket.get(), pending.input.data() + before, size - before, 0);
  const int error = errno;
  pending.input.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (pending.input.size() == size) return Step::kProved;
  const bool closed = got == 0 || (got < 0 && error != EAGAIN && error != EINTR);
  if (closed) {
    refuse(pending.from, "it left before it proved the token");
    return Step::kRefused;
  }
  if (!pending.deadline.passed()) return Step::kWaits;
  refuse(pending.from,
         fmt::format("it proved no token within {} ms", options_.greeting_time.count()));
  return Step::kRefused;
}

}  // namespace hanji::launch
