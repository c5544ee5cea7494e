#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hanji::test::model {

/// Code on a stack of its own that runs until it gives way, and whose whole state can be saved,
/// restored and hashed. For x86-64 and AArch64; no sanitizer can follow it.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// `body` will run from its beginning.
  void begin(std::function<void()> body);
  /// Runs until the body gives way or ends. What it throws ends it; see error().
  void resume();
  /// Called by a body.
  static void give_way();

  bool ended() const { return ended_; }
  const std::string& error() const { return error_; }
  /// All that the body still needs of its stack. Equal bytes: it goes on equally.
  std::span<std::byte> live_stack() const;

  struct Saved {
    ucontext_t context;
    std::vector<std::byte> stack;
    bool ended;
  };
  void save(Saved& saved) const;
  void restore(const Saved& saved);

 private:
  static constexpr size_t kStackBytes = size_t{256} << 10;
  static void enter();

  std::byte* stack_;
  ucontext_t context_{};
  ucontext_t resumer_{};
  std::function<void()> body_;
  bool ended_ = true;
  std::string error_;
};

}  // namespace hanji::test::model
