#include "hanji/launch/control_plane/sessions.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "hanji/base/run_clock.h"

namespace hanji::launch {
namespace {

constexpr size_t kMaxUnsent = size_t{32} << 20;
constexpr size_t kMaxAnswers = 1024;

std::string name_of(uint32_t role, uint32_t index) {
  const bool rank = role == static_cast<uint32_t>(Role::kRank);
  return fmt::format("{} {}", rank ? "rank" : "the launcher of node", index);
}

std::string claimant(const Hello& hello) {
  return fmt::format("{} of host {}", name_of(hello.role, hello.index), text_in(hello.host));
}

Status differ(const Hello& hello, std::string_view what, std::string_view theirs,
              std::string_view ours) {
  return base::mismatch(
      fmt::format("{} has {} {}, this run has {}: start one program with one "
                  "configuration on all hosts",
                  name_of(hello.role, hello.index), what, theirs, ours));
}

/// The last words of the handshake; a refusal's follow as a frame.
void send_answer(Channel& channel, const Transcript& transcript, const Token& token,
                 const Status& status) {
  Answer answer;
  answer.code = static_cast<uint32_t>(status.code());
  answer.proof = transcript.server_proof(token, answer.code);
  // A socket this fresh takes 40 bytes, unless the peer is gone already.
  static_cast<void>(!::send(channel.fd(), &answer, sizeof(answer), MSG_NOSIGNAL));
  if (status.ok()) return;
  channel.queue(status.message());
  static_cast<void>(channel.flush());
}

}  // namespace

Status Sessions::admit(Authenticator::AuthenticatedPeer peer) {
  Channel channel(std::move(peer.socket), {.send = peer.transcript.server_key(options_.token),
                                           .receive = peer.transcript.client_key(options_.token)});
  const auto seat = seat_for(peer);
  send_answer(channel, peer.transcript, options_.token, seat.status());
  if (!seat.ok()) {
    return seat.status().at(claimant(peer.transcript.hello));
  }
  static_cast<void>(base::tune_connection(channel.fd(), options_.silence));
  Session& session = **seat;
  session.from = peer.from;
  session.channel = std::move(channel);
  session.heard_ns = base::running_ns();
  return {};
}

Status Sessions::check(const Hello& hello) const {
  const bool known_role = hello.role <= static_cast<uint32_t>(Role::kRank);
  if (hello.version != kProtocolVersion || !known_role) {
    return differ(hello, "protocol", std::to_string(hello.version),
                  std::to_string(kProtocolVersion));
  }
  if (hello.num_nodes != static_cast<uint32_t>(options_.num_nodes)) {
    return differ(hello, "hosts:", std::to_string(hello.num_nodes),
                  std::to_string(options_.num_nodes));
  }
  const bool rank = hello.role == static_cast<uint32_t>(Role::kRank);
  if (rank && hello.world_size != static_cast<uint32_t>(world_size_)) {
    return differ(hello, "ranks:", std::to_string(hello.world_size), std::to_string(world_size_));
  }
  const auto count = static_cast<uint32_t>(rank ? world_size_ : options_.num_nodes);
  if (hello.index < count) return {};
  return base::invalid_argument(
      fmt::format("{} of {}: indices begin at 0", name_of(hello.role, hello.index), count));
}

Status Sessions::check_build(const Hello& hello) {
  const std::string theirs = text_in(hello.build_id);
  const bool rank = hello.role == static_cast<uint32_t>(Role::kRank);
  if (rank && rank_build_.empty()) rank_build_ = theirs;
  const std::string& ours = rank ? rank_build_ : options_.build_id;
  return theirs == ours ? Status() : differ(hello, "build", theirs, ours);
}

/// A seat that the peer may take: a new one, its own, or a broken one that it replaces.
Result<Sessions::Session*> Sessions::seat_for(const Authenticator::AuthenticatedPeer& peer) {
  const Hello& hello = peer.transcript.hello;
  HANJI_RETURN_IF_ERROR(check(hello));
  HANJI_RETURN_IF_ERROR(check_build(hello));
  const auto place = std::find_if(sessions_.begin(), sessions_.end(), [&](const Session& session) {
    return session.hello.role == hello.role && session.hello.index == hello.index;
  });
  const bool taken = place != sessions_.end();
  if (taken && place->hello.instance == hello.instance) return &*place;
  if (hello.resumes != 0) {
    return base::mismatch(fmt::format("{} was away for too long, and is counted as lost",
                                      name_of(hello.role, hello.index)));
  }
  if (taken && place->channel) {
    return base::invalid_argument(fmt::format("it is here already, from host {} ({})",
                                              text_in(place->hello.host),
                                              base::to_text(place->from)));
  }
  if (taken) {
    // May pass: then the client tries again.
    return base::peer_lost("its last connection broke, and is not given up yet");
  }
  Session& session = sessions_.emplace_back();
  session.id = next_id_++;
  session.hello = hello;
  return &session;
}

void Sessions::append_polls(std::vector<pollfd>& polls) const {
  for (const Session& session : sessions_) {
    if (!session.channel) continue;
    const short out = session.channel->wants_to_send() ? POLLOUT : 0;
    polls.push_back({session.channel->fd(), static_cast<short>(POLLIN | out), 0});
  }
}

void Sessions::serve(Table& table) {
  for (Session& session : sessions_) serve(session, table);
  // What one asked may have let others go.
  for (Session& session : sessions_) {
    if (!session.channel || !session.channel->wants_to_send()) continue;
    const Status sent = session.channel->flush();
    if (!sent.ok()) break_off(session, sent);
  }
}

void Sessions::serve(Session& session, Table& table) {
  if (!session.channel) return;
  const Status status = exchange(session, table);
  if (!status.ok()) break_off(session, status);
}

Status Sessions::exchange(Session& session, Table& table) {
  const Status received = session.channel->receive();
  while (true) {
    HANJI_ASSIGN_OR_RETURN(const auto frame, session.channel->next());
    if (!frame) break;
    session.heard_ns = base::running_ns();
    HANJI_RETURN_IF_ERROR(take(session, *frame, table));
  }
  HANJI_RETURN_IF_ERROR(session.channel->flush());
  if (session.channel->queued_bytes() > kMaxUnsent) {
    return base::peer_lost("it does not read its answers");
  }
  return received;
}

/// One request; one that took effect before is answered as then, if it is answered yet.
Status Sessions::take(Session& session, const std::string& frame, Table& table) {
  HANJI_ASSIGN_OR_RETURN(const Request request, parse_request(frame));
  auto& answers = session.answers;
  answers.erase(answers.begin(), answers.lower_bound(request.acknowledged));
  if (request.operation == Operation::kPing) {
    session.channel->queue(to_bytes(Response{request.id, Code::kOk, ""}));
    return {};
  }
  if (request.id <= session.last_id) {
    const auto again = answers.find(request.id);
    if (again != answers.end()) session.channel->queue(again->second);
    return {};
  }
  if (answers.size() >= kMaxAnswers) return base::corrupt("it acknowledges no answers");
  session.last_id = request.id;
  if (request.operation == Operation::kGoodbye) session.has_left = true;
  deliver(table.handle({session.id, request.id}, request));
  return {};
}

void Sessions::deliver(const std::vector<Table::Reply>& replies) {
  for (const Table::Reply& reply : replies) {
    const auto to = std::find_if(sessions_.begin(), sessions_.end(), [&](const Session& session) {
      return session.id == reply.to.session;
    });
    if (to == sessions_.end()) continue;
    std::string bytes = to_bytes(Response{reply.to.id, reply.code, reply.text});
    if (to->channel) to->channel->queue(bytes);
    to->answers[reply.to.id] = std::move(bytes);
  }
}

void Sessions::break_off(Session& session, const Status& why) {
  session.channel.reset();
  session.broken_ns = base::running_ns();
  session.broken_by = why;
}

std::optional<Status> Sessions::why_lost(const Session& session) const {
  const int64_t now = base::running_ns();
  const auto longer = [&](int64_t since, std::chrono::milliseconds time) {
    return now - since > std::chrono::nanoseconds(time).count();
  };
  if (!session.channel && longer(session.broken_ns, options_.reconnect_time)) {
    return session.broken_by;
  }
  if (!longer(session.heard_ns, options_.silence)) return {};
  return base::timeout(fmt::format("nothing was heard of it for {} ms", options_.silence.count()));
}

std::vector<LostClient> Sessions::take_lost(Table& table) {
  std::vector<LostClient> lost;
  std::erase_if(sessions_, [&](const Session& session) {
    const bool gone = session.has_left && (!session.channel || !session.channel->wants_to_send());
    const auto why = gone ? std::optional(Status()) : why_lost(session);
    if (!why) return false;
    table.forget(session.id);
    if (!session.has_left) {
      lost.push_back({static_cast<Role>(session.hello.role), static_cast<int>(session.hello.index),
                      text_in(session.hello.host), base::to_text(session.from), *why});
    }
    return true;
  });
  return lost;
}

bool Sessions::any_broken() const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const Session& session) { return !session.channel || session.has_left; });
}

}  // namespace hanji::launch
