#include "hanji/data/page_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/scratch_engine.h"

namespace hanji::data {
namespace {

constexpr int64_t kBlock = 4096;
constexpr std::chrono::microseconds kPause{50};
constexpr size_t kMessageBytes = 512;
// Samples whose uses are known at a time: what comes later is as far as can be.
constexpr int64_t kMaxKnownUses = int64_t{1} << 21;
constexpr int64_t kNever = INT64_MAX;

int64_t round_up(int64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

/// What a page's entry says: nothing, or slot + 1, negative if the page is damaged.
using Entry = std::atomic<int32_t>;
static_assert(Entry::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

std::vector<uint32_t> pages_of_step(const Loader& loader, std::span<const uint32_t> pages,
                                    int64_t step) {
  std::vector<uint32_t> needed;
  for (const EpochSample one : loader.at(step, loader.options().share)) {
    needed.push_back(pages[static_cast<size_t>(one.index)]);
  }
  std::ranges::sort(needed);
  const auto [first, last] = std::ranges::unique(needed);
  needed.erase(first, last);
  return needed;
}

}  // namespace

/// The parts of the memory that ranks share.
struct PageCache::Shared {
  std::atomic<int32_t>* has_failed;  // then `message` is why
  char* message;
  std::atomic<int64_t>* steps_done;  // of each rank
  Entry* entries;                    // of each page
  std::byte* slots;

  Shared(std::byte* memory, int num_ranks, uint64_t num_pages) {
    has_failed = reinterpret_cast<std::atomic<int32_t>*>(memory);
    message = reinterpret_cast<char*>(memory + 64);
    steps_done = reinterpret_cast<std::atomic<int64_t>*>(memory + 64 + kMessageBytes);
    entries = reinterpret_cast<Entry*>(steps_done + num_ranks);
    auto* end = reinterpret_cast<std::byte*>(entries + num_pages);
    // Blocks begin where they begin in memory, which all ranks map at multiples of them.
    const auto address = reinterpret_cast<uintptr_t>(end);
    slots = end + (round_up(static_cast<int64_t>(address)) - static_cast<int64_t>(address));
  }
};

/// The thread of the rank that reads.
struct PageCache::Reader {
  PageCache& cache;
  const Loader loader;
  const std::vector<uint32_t> pages;
  const layout::Range steps;
  const int64_t steps_together;
  std::unique_ptr<base::TransferEngine> engine;

  struct Slot {
    std::optional<uint32_t> page;
    int64_t last_step = -1;  ///< That needs it, of those planned so far.
  };
  std::vector<Slot> slots;
  std::unordered_map<uint32_t, size_t> slot_of;
  int64_t num_reads = 0;
  // Steps that need each page, of those from known_begin to known_end.
  layout::Range known;
  std::unordered_map<uint32_t, std::vector<int64_t>> uses;
  std::vector<std::vector<uint32_t>> needed;  // of each step of `known`
  std::atomic<int64_t> bytes_read = 0;
  std::jthread thread;  // last: it uses all of the above

  Reader(PageCache& of, const Loader& order, std::vector<uint32_t> of_samples, layout::Range all,
         int64_t steps_ahead, std::unique_ptr<base::TransferEngine> by)
      : cache(of),
        loader(order),
        pages(std::move(of_samples)),
        steps(all),
        steps_together(PageBudget{.steps_ahead = steps_ahead}.steps_together()),
        engine(std::move(by)),
        slots(static_cast<size_t>(of.options_.most_pages)) {}

  int64_t page_bytes() const { return static_cast<int64_t>(cache.options_.page_bytes); }
  std::byte* memory_of(size_t slot) const {
    return cache.shared_->slots + static_cast<int64_t>(slot) * page_bytes();
  }

  void run(const std::stop_token& stop) {
    Status status;
    for (int64_t step = steps.begin; step < steps.end && status.ok(); ++step) {
      const bool knows_all = std::min(step + steps_together, steps.end) <= known.end;
      if (!knows_all) know_from(step);
      for (const uint32_t page : needed[static_cast<size_t>(step - known.begin)]) {
        if (status.ok()) status = provide(page, step, stop);
        if (stop.stop_requested()) return;
      }
    }
    while (status.ok() && num_reads > 0 && !stop.stop_requested()) status = finish_one(true);
    if (!status.ok()) fail(status);
  }

  void know_from(int64_t begin) {
    const int64_t most =
        std::max<int64_t>(2 * steps_together, kMaxKnownUses / loader.options().global_batch);
    known = {begin, std::min(begin + most, steps.end)};
    uses.clear();
    needed.clear();
    for (int64_t step = known.begin; step < known.end; ++step) {
      needed.push_back(pages_of_step(loader, pages, step));
      for (const uint32_t page : needed.back()) uses[page].push_back(step);
    }
  }

  int64_t next_use(uint32_t page, int64_t step) const {
    const auto found = uses.find(page);
    if (found == uses.end()) return kNever;
    const auto next = std::ranges::lower_bound(found->second, step);
    return next == found->second.end() ? kNever : *next;
  }

  /// Makes the page one of those in memory, or on their way.
  Status provide(uint32_t page, int64_t step, const std::stop_token& stop) {
    const auto known_slot = slot_of.find(page);
    if (known_slot != slot_of.end()) {
      slots[known_slot->second].last_step = step;
      return {};
    }
    std::optional<size_t> slot;
    while (!slot) {
      if (stop.stop_requested()) return {};
      HANJI_RETURN_IF_ERROR(finish_one(num_reads >= kMaxReads));
      if (num_reads < kMaxReads) slot = free_slot();
      if (!slot && num_reads == 0) std::this_thread::sleep_for(kPause);
    }
    return start(page, step, *slot);
  }

  /// One that no step under way needs, though it may be there from an earlier one: empty, or with the
  /// furthest next use.
  std::optional<size_t> free_slot() {
    int64_t least_done = kNever;
    for (int rank = 0; rank < cache.num_ranks_; ++rank) {
      const auto done = cache.shared_->steps_done[rank].load(std::memory_order_acquire);
      least_done = std::min(least_done, done);
    }
    std::optional<size_t> best;
    int64_t furthest = -1;
    for (size_t i = 0; i < slots.size(); ++i) {
      const Slot& one = slots[i];
      if (!one.page) return i;
      if (one.last_step >= least_done) continue;
      const int64_t next = next_use(*one.page, least_done);
      if (next < least_done + steps_together) continue;
      if (next > furthest) best = i;
      furthest = std::max(furthest, next);
    }
    return best;
  }

  Status start(uint32_t page, int64_t step, size_t slot) {
    Slot& one = slots[slot];
    if (one.page) {
      cache.shared_->entries[*one.page].store(0, std::memory_order_release);
      slot_of.erase(*one.page);
    }
    one = {page, step};
    slot_of[page] = slot;
    const auto at = static_cast<int64_t>(cache.options_.begin) + page * page_bytes();
    // The memory is the ranks': it outlives the engine.
    std::shared_ptr<std::byte> memory(std::shared_ptr<void>(), memory_of(slot));
    HANJI_RETURN_IF_ERROR(engine->start(
        slot + 1, {.writes = false, .at = at, .memory = std::move(memory), .bytes = page_bytes()}));
    ++num_reads;
    return {};
  }

  /// Publishes a page that has come, if there is one or the caller waits for it.
  Status finish_one(bool waits) {
    if (num_reads == 0) return {};
    const auto pause = waits ? std::chrono::nanoseconds(std::chrono::milliseconds(10)) : kPause;
    HANJI_ASSIGN_OR_RETURN(const auto ended, engine->next(base::Deadline::after(pause)));
    if (!ended) return {};
    --num_reads;
    const size_t slot = ended->ticket - 1;
    const uint32_t page = *slots[slot].page;
    if (ended->error != 0) {
      return base::from_errno(fmt::format("{}: page {}", cache.options_.path.native(), page),
                              ended->error);
    }
    if (ended->moved != page_bytes()) {
      return base::corrupt(fmt::format("{}: page {} has {} of {} bytes; the file was cut",
                                       cache.options_.path.native(), page, ended->moved,
                                       page_bytes()));
    }
    bytes_read += page_bytes();
    const std::span<const std::byte> bytes(memory_of(slot), cache.options_.page_bytes);
    const auto& is_good = cache.options_.is_good;
    const auto entry = static_cast<int32_t>(slot + 1);
    cache.shared_->entries[page].store(!is_good || is_good(page, bytes) ? entry : -entry,
                                       std::memory_order_release);
    return {};
  }

  void fail(const Status& status) {
    const std::string text = status.message().substr(0, kMessageBytes - 1);
    std::memcpy(cache.shared_->message, text.c_str(), text.size() + 1);
    cache.shared_->has_failed->store(1 + static_cast<int32_t>(status.code()),
                                     std::memory_order_release);
  }
};

PageCache::PageCache(const PageCacheOptions& options, base::Fd fd,
                     std::unique_ptr<base::TransferEngine> engine)
    : options_(options), fd_(std::move(fd)), engine_(std::move(engine)) {}
PageCache::~PageCache() { stop(); }

Result<std::shared_ptr<PageCache>> PageCache::open(const PageCacheOptions& options) {
  if (options.page_bytes % kBlock != 0 || options.begin % kBlock != 0 || options.most_pages < 2) {
    return base::invalid_argument(fmt::format(
        "pages of {} bytes from byte {}, {} in memory: blocks of {} bytes are read, and "
        "at least 2 pages are kept",
        options.page_bytes, options.begin, options.most_pages, kBlock));
  }
  HANJI_ASSIGN_OR_RETURN(base::Fd fd, base::open_past_cache(options.path));
  auto ring = base::make_ring_engine(fd.get());
  if (!ring.ok()) {
    return base::unsupported(fmt::format(
        "{}: a page cache of the process reads by io_uring, which fails: {}; use the kernel's",
        options.path.native(), ring.status().message()));
  }
  return std::shared_ptr<PageCache>(new PageCache(options, std::move(fd), *std::move(ring)));
}

int64_t PageCache::memory_bytes(int num_ranks) const {
  const int64_t table = 64 + static_cast<int64_t>(kMessageBytes) + int64_t{8} * num_ranks +
                        static_cast<int64_t>(sizeof(Entry) * options_.num_pages);
  const auto page = static_cast<int64_t>(options_.page_bytes);
  return round_up(table) + kBlock + options_.most_pages * page;
}

void PageCache::attach(std::byte* memory, int rank, int num_ranks) {
  rank_ = rank;
  num_ranks_ = num_ranks;
  is_cancelled_ = false;
  shared_ = std::make_unique<Shared>(memory, num_ranks, options_.num_pages);
}

void PageCache::start_reading(const Loader& loader, std::vector<uint32_t> pages,
                              layout::Range steps, int64_t steps_ahead) {
  if (!engine_) engine_ = base::make_ring_engine(fd_.get()).or_throw();
  reader_ = std::make_unique<Reader>(*this, loader, std::move(pages), steps, steps_ahead,
                                     std::move(engine_));
  Reader* reader = reader_.get();
  reader->thread = std::jthread([reader](const std::stop_token& stop) { reader->run(stop); });
}

void PageCache::finish_step(int64_t step) {
  shared_->steps_done[rank_].store(step + 1, std::memory_order_release);
}

Result<CachedPage> PageCache::page(uint64_t page) const {
  const auto deadline = base::Deadline::after(options_.deadline);
  while (true) {
    const int32_t entry = shared_->entries[page].load(std::memory_order_acquire);
    if (entry != 0) {
      const int64_t slot = std::abs(entry) - 1;
      const auto* bytes = shared_->slots + slot * static_cast<int64_t>(options_.page_bytes);
      return CachedPage{{bytes, options_.page_bytes}, entry > 0};
    }
    const int32_t failed = shared_->has_failed->load(std::memory_order_acquire);
    if (failed != 0) return Status(static_cast<Code>(failed - 1), shared_->message);
    if (is_cancelled_) return Status(Code::kCancelled, "the cache of pages was stopped");
    if (deadline.passed()) {
      return base::timeout(
          fmt::format("{}: page {} was not read in {} s; the rank that reads pages is slow, or no "
                      "step needs it",
                      options_.path.native(), page,
                      std::chrono::duration_cast<std::chrono::seconds>(options_.deadline).count()));
    }
    std::this_thread::sleep_for(kPause);
  }
}

Result<double> PageCache::seconds_per_page() const {
  HANJI_ASSIGN_OR_RETURN(const auto engine, base::make_ring_engine(fd_.get()));
  const auto bytes = static_cast<int64_t>(options_.page_bytes);
  const int64_t count = std::min<int64_t>(kTimedPages, static_cast<int64_t>(options_.num_pages));
  const int64_t slots = std::min(count, kMaxReads);
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(kBlock, static_cast<size_t>(slots * bytes))),
      &std::free);
  if (memory == nullptr) return base::out_of_memory("no memory to time pages of a file");
  const int64_t begun = base::now_ns();
  const auto start = [&](int64_t page) {
    return engine->start(static_cast<uint64_t>(page),
                         {.at = static_cast<int64_t>(options_.begin) + page * bytes,
                          .memory = {memory, memory.get() + page % slots * bytes},
                          .bytes = bytes});
  };
  for (int64_t page = 0; page < slots; ++page) HANJI_RETURN_IF_ERROR(start(page));
  for (int64_t done = 0; done < count; ++done) {
    HANJI_ASSIGN_OR_RETURN(const auto ended,
                           engine->next(base::Deadline::after(options_.deadline)));
    if (!ended) return base::timeout(options_.path.native() + ": a page was not read in time");
    if (ended->error != 0) return base::from_errno(options_.path.native(), ended->error);
    const auto page = static_cast<int64_t>(ended->ticket);
    if (ended->moved != bytes) return base::corrupt(options_.path.native() + ": the file was cut");
    // What the check says is the run's to tell.
    const std::span<const std::byte> read(memory.get() + page % slots * bytes, options_.page_bytes);
    if (options_.is_good) options_.is_good(static_cast<uint64_t>(page), read);
    if (page + slots < count) HANJI_RETURN_IF_ERROR(start(page + slots));
  }
  return static_cast<double>(base::now_ns() - begun) * 1e-9 / static_cast<double>(count);
}

int64_t PageCache::bytes_read() const { return reader_ ? reader_->bytes_read.load() : 0; }

void PageCache::stop() {
  reader_.reset();
  shared_.reset();
}

Status check_page_budget(const Loader& loader, std::span<const uint32_t> pages,
                         const PageBudget& budget, layout::Range steps) {
  const int64_t together = budget.steps_together();
  if (pages.empty() || steps.empty()) return {};
  // A page counts at the last step that needs it, of those of the window.
  std::vector<int64_t> last_step(static_cast<size_t>(std::ranges::max(pages)) + 1, -1);
  std::vector<int64_t> count(static_cast<size_t>(together), 0);
  const auto count_at = [&](int64_t step) -> int64_t& {
    return count[static_cast<size_t>(step % together)];
  };
  int64_t in_window = 0, most = 0, worst = steps.begin;
  for (int64_t step = steps.begin; step < steps.end; ++step) {
    in_window -= std::exchange(count_at(step), 0);
    for (const EpochSample one : loader.at(step, loader.options().share)) {
      int64_t& last = last_step[pages[static_cast<size_t>(one.index)]];
      if (last == step) continue;
      if (last > step - together && last >= 0) {
        --count_at(last);
        --in_window;
      }
      last = step;
      ++count_at(step);
      ++in_window;
    }
    if (in_window > most) worst = step;
    most = std::max(most, in_window);
  }
  if (most <= budget.most_pages) return {};
  const bool spreads = loader.options().order == plan::SampleOrder::kRandom;
  return base::invalid_argument(
      fmt::format("data.pages = {} pages in memory, but the {} steps up to {} need {} together; "
                  "set {}data.pages = {}",
                  budget.most_pages, together, worst, most,
                  spreads ? "data.order = \"quasi\", or " : "", most));
}

}  // namespace hanji::data
