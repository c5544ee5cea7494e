#include "hanji/test/gpu/pending.h"

#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hanji::test::gpu {
namespace {

struct Copy {
  at::Tensor host;  // keeps the memory, as libtorch's allocator of pinned memory does
  std::string bytes;
  bool is_to_host;
};

/// In the order of their begin. Only contiguous tensors, as batches and results are, are followed.
struct Pending {
  std::mutex mutex;
  std::vector<Copy> copies;
};

Pending& pending() {
  static auto* all = new Pending;
  return *all;
}

void begin(const at::Tensor& host, bool is_to_host) {
  if (!host.is_contiguous() || host.numel() == 0) return;
  auto* data = static_cast<char*>(const_cast<void*>(host.const_data_ptr()));
  Copy copy{host, std::string(data, host.nbytes()), is_to_host};
  if (is_to_host) std::memset(data, 0xFF, host.nbytes());
  const std::lock_guard lock(pending().mutex);
  pending().copies.push_back(std::move(copy));
}

}  // namespace

void begin_copy_to_device(const at::Tensor& host) { begin(host, false); }
void begin_copy_to_host(const at::Tensor& host) { begin(host, true); }

void end_copies() {
  std::vector<Copy> copies;
  {
    const std::lock_guard lock(pending().mutex);
    copies.swap(pending().copies);
  }
  for (const Copy& copy : copies) {
    auto* data = static_cast<char*>(const_cast<void*>(copy.host.const_data_ptr()));
    if (copy.is_to_host) {
      std::memcpy(data, copy.bytes.data(), copy.bytes.size());
      continue;
    }
    TORCH_CHECK(std::memcmp(data, copy.bytes.data(), copy.bytes.size()) == 0, "pinned memory of ",
                copy.bytes.size(), " bytes was written before a copy of it to ",
                "the device was waited for");
  }
}

}  // namespace hanji::test::gpu
