#include "hanji/test/model/arena.h"

#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace hanji::test::model {
namespace {

/// Before each block.
struct BlockHeader {
  size_t previous;  ///< Offset of the header before; of the first: its own.
  size_t freed;
};
static_assert(sizeof(BlockHeader) == 16);

// `new` has no argument that could carry them. Explorations run on one thread.
Arena* current = nullptr;
std::array<Arena*, 16> all{};

}  // namespace

Arena::Arena()
    : memory_(static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  for (Arena*& place : all) {
    if (place != nullptr) continue;
    place = this;
    return;
  }
  throw std::bad_alloc();
}

Arena::~Arena() {
  for (Arena*& place : all) {
    if (place == this) place = nullptr;
  }
  ::munmap(memory_, kBytes);
}

// The first 16 bytes hold the offset of the last block's header.
void* Arena::allocate(size_t bytes) {
  size_t last = 0;
  if (used_ == 0) {
    used_ = 16;
  } else {
    std::memcpy(&last, memory_, sizeof last);
  }
  const size_t header = used_;
  const size_t end = (header + sizeof(BlockHeader) + bytes + 15) / 16 * 16;
  if (end > kBytes) throw std::bad_alloc();
  std::memset(memory_ + header, 0, end - header);
  const BlockHeader block{last, 0};
  std::memcpy(memory_ + header, &block, sizeof block);
  std::memcpy(memory_, &header, sizeof header);
  used_ = end;
  return memory_ + header + sizeof block;
}

void Arena::free(void* block) {
  auto* header = reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(block) - 16);
  header->freed = 1;
  size_t last = 0;
  std::memcpy(&last, memory_, sizeof last);
  while (last != 0) {
    const auto* top = reinterpret_cast<const BlockHeader*>(memory_ + last);
    if (top->freed == 0) break;
    used_ = last;
    last = top->previous;
  }
  std::memcpy(memory_, &last, sizeof last);
}

Arena* Arena::use(Arena* arena) { return std::exchange(current, arena); }

}  // namespace hanji::test::model

using hanji::test::model::all;
using hanji::test::model::Arena;
using hanji::test::model::current;

void* operator new(size_t bytes) {
  void* block = current != nullptr ? current->allocate(bytes) : std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void operator delete(void* block) noexcept {
  for (Arena* arena : all) {
    if (arena != nullptr && arena->owns(block)) return arena->free(block);
  }
  std::free(block);
}

void operator delete(void* block, size_t) noexcept { operator delete(block); }
