#include "hanji/comm/share_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>

#include "hanji/comm/broadcast.h"

namespace hanji::comm {

std::string share_text(std::string text, const Group& group, std::string_view label) {
  at::Tensor size = at::empty({1}, at::kLong);
  size[0] = static_cast<int64_t>(text.size());
  broadcast(size, 0, group, {.label = fmt::format("size of the {}", label)}).wait();
  text.resize(static_cast<size_t>(size.item<int64_t>()));
  if (text.empty()) return text;
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  broadcast(bytes, 0, group, {.label = label}).wait();
  std::memcpy(text.data(), bytes.const_data_ptr(), text.size());
  return text;
}

}  // namespace hanji::comm
