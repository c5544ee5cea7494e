#pragma once

#include <cstddef>
#include <span>

/// Memory that a modelled thread allocates from, so that it can be saved, restored and hashed.
namespace hanji::test::model {

/// One thread's heap: blocks in a row. What is freed last goes back at once, so the same code finds
/// the same addresses, whatever the other threads did meanwhile.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* allocate(size_t bytes);
  void free(void* block);
  bool owns(const void* block) const { return block >= memory_ && block < memory_ + kBytes; }

  std::span<std::byte> used() const { return {memory_, used_}; }
  /// Empty again, or as it was when `bytes` of it were used; its bytes are the caller's to restore.
  void reset(size_t bytes = 0) { used_ = bytes; }

  /// Where `new` takes memory from until the next call; null: from the C library. What it was.
  static Arena* use(Arena* arena);

 private:
  static constexpr size_t kBytes = size_t{8} << 20;

  std::byte* memory_;
  size_t used_ = 0;
};

}  // namespace hanji::test::model
