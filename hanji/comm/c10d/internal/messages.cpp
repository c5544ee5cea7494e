#include <utility>

#include "hanji/comm/c10d/internal/group_backend.h"
#include "hanji/comm/message.h"

namespace hanji::comm::c10d {

using ::c10d::OpType;

WorkPtr GroupBackend::send(Tensors& tensors, int to, int tag) {
  const auto name = named(OpType::SEND, "hanji:send", ::c10d::kUnsetTimeout, tensors);
  const at::Tensor tensor = to_move(only(tensors, name.title));
  auto work = comm::send(tensor, to, group(), {.tag = static_cast<uint64_t>(tag), .label = "c10d"});
  return track(name, tensors, std::move(work));
}

WorkPtr GroupBackend::recv(Tensors& tensors, int from, int tag) {
  const auto name = named(OpType::RECV, "hanji:recv", ::c10d::kUnsetTimeout, tensors);
  const at::Tensor tensor = only(tensors, name.title);
  at::Tensor staged = to_fill(tensor);
  auto work =
      comm::recv(staged, from, group(), {.tag = static_cast<uint64_t>(tag), .label = "c10d"});
  return track(
      name, tensors, std::move(work), [tensor, staged] { put_back(tensor, staged); }, from);
}

WorkPtr GroupBackend::recvAnysource(Tensors& tensors, int tag) {
  const auto name =
      named(OpType::RECVANYSOURCE, "hanji:recvAnySource", ::c10d::kUnsetTimeout, tensors);
  const at::Tensor tensor = only(tensors, name.title);
  const at::Tensor staged = to_fill(tensor);
  if (!any_source_) any_source_ = std::make_unique<AnySource>(group());
  auto tracked = begin(name, tensors);
  any_source_->add(staged, static_cast<uint64_t>(tag),
                   [tracked, tensor, staged](const Status& status, int from) {
                     tracked->complete_after([&] { put_back(tensor, staged); }, status, from);
                   });
  return note(tracked);
}

}  // namespace hanji::comm::c10d
