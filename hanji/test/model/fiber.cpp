#include "hanji/test/model/fiber.h"

#include <sys/mman.h>

#include <cstring>
#include <exception>
#include <new>

namespace hanji::test::model {
namespace {

// makecontext() takes no pointer. Explorations run on one thread.
Fiber* running = nullptr;

constexpr size_t kCleared = size_t{16} << 10;  // below the stack pointer: more than a body uses

std::byte* stack_pointer(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<std::byte*>(context.uc_mcontext.gregs[REG_RSP]);
#else
  return reinterpret_cast<std::byte*>(context.uc_mcontext.sp);
#endif
}

}  // namespace

Fiber::Fiber()
    : stack_(static_cast<std::byte*>(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
}

Fiber::~Fiber() { ::munmap(stack_, kStackBytes); }

void Fiber::begin(std::function<void()> body) {
  body_ = std::move(body);
  ended_ = false;
  error_.clear();
  std::memset(stack_, 0, kStackBytes);
  ::getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  ::makecontext(&context_, &Fiber::enter, 0);
}

void Fiber::enter() {
  Fiber& self = *running;
  try {
    self.body_();
  } catch (const std::exception& error) {
    self.error_ = error.what();
  }
  self.ended_ = true;
  ::setcontext(&self.resumer_);
}

void Fiber::resume() {
  running = this;
  ::swapcontext(&resumer_, &context_);
  running = nullptr;
  if (ended_) return;
  // What calls left there would tell equal states apart.
  std::byte* top = stack_pointer(context_);
  std::byte* bottom = top - stack_ > static_cast<ptrdiff_t>(kCleared) ? top - kCleared : stack_;
  std::memset(bottom, 0, static_cast<size_t>(top - bottom));
}

void Fiber::give_way() {
  // Registers that callers own go to the stack, where they are saved and hashed with it.
  __builtin_unwind_init();
  ::swapcontext(&running->context_, &running->resumer_);
}

std::span<std::byte> Fiber::live_stack() const {
  if (ended_) return {};
  std::byte* top = stack_pointer(context_);
  return {top, static_cast<size_t>(stack_ + kStackBytes - top)};
}

void Fiber::save(Saved& saved) const {
  saved.context = context_;
  const auto live = live_stack();
  saved.stack.assign(live.begin(), live.end());
  saved.ended = ended_;
}

// The context points into itself (floating-point state) and is copied back to where it was.
void Fiber::restore(const Saved& saved) {
  context_ = saved.context;
  ended_ = saved.ended;
  std::byte* end = stack_ + kStackBytes;
  std::memcpy(end - saved.stack.size(), saved.stack.data(), saved.stack.size());
  if (ended_) return;
  std::byte* top = end - saved.stack.size();
  std::byte* bottom = top - stack_ > static_cast<ptrdiff_t>(kCleared) ? top - kCleared : stack_;
  std::memset(bottom, 0, static_cast<size_t>(top - bottom));
}

}  // namespace hanji::test::model
