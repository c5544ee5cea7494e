#include "hanji/trace/kernels.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace hanji::trace {
namespace {

/// What an event is to the sweep along the time of a rank.
enum class Role { kNone, kStep, kPart, kWait, kTransfer };

Role role_of(const Event& event) {
  const bool is_main = event.lane == Lane::kMain;
  switch (event.category) {
    case Category::kStep: return Role::kStep;
    case Category::kCompute: return is_main ? Role::kPart : Role::kNone;
    case Category::kTransfer: return Role::kTransfer;
    case Category::kSkew:
    case Category::kData: return is_main ? Role::kWait : Role::kNone;
    default: return Role::kNone;
  }
}

/// An event begins or ends.
struct Edge {
  int64_t ns = 0;
  bool begins = false;
  Role role = Role::kNone;
  const Event* event = nullptr;
};

/// Walks the edges and turns what is active between two of them into kernels.
class Sweep {
 public:
  std::vector<Kernel> run(std::vector<Edge> edges) {
    std::ranges::stable_sort(edges, {}, &Edge::ns);
    for (size_t i = 0; i < edges.size(); ++i) {
      change(edges[i]);
      if (i + 1 < edges.size() && edges[i + 1].ns == edges[i].ns) continue;
      paint(Stream::kCompute, computing(), edges[i].ns);
      paint(Stream::kTransfer, transferring(), edges[i].ns);
    }
    std::ranges::stable_sort(kernels_, {}, &Kernel::start_us);
    return std::move(kernels_);
  }

 private:
  void change(const Edge& edge) {
    std::vector<const Event*>& active = active_[static_cast<size_t>(edge.role)];
    if (edge.begins) return active.push_back(edge.event);
    std::erase(active, edge.event);
  }

  const Event* innermost(Role role) const {
    const std::vector<const Event*>& active = active_[static_cast<size_t>(role)];
    return active.empty() ? nullptr : active.back();
  }

  /// The part or step whose computing goes on now.
  const Event* computing() const {
    if (innermost(Role::kWait) != nullptr) return nullptr;
    const auto& transfers = active_[static_cast<size_t>(Role::kTransfer)];
    const auto is_own = [](const Event* event) { return event->lane == Lane::kMain; };
    if (std::ranges::any_of(transfers, is_own)) return nullptr;
    const Event* part = innermost(Role::kPart);
    return part != nullptr ? part : innermost(Role::kStep);
  }

  const Event* transferring() const {
    const bool is_counted = innermost(Role::kStep) != nullptr || innermost(Role::kPart) != nullptr;
    return is_counted ? innermost(Role::kTransfer) : nullptr;
  }

  void paint(Stream stream, const Event* event, int64_t now_ns) {
    Open& open = open_[static_cast<size_t>(stream)];
    if (open.event == event) return;
    if (open.event != nullptr) close(stream, open, now_ns);
    open = {event, now_ns};
  }

  struct Open {
    const Event* event = nullptr;
    int64_t since_ns = 0;
  };

  void close(Stream stream, const Open& open, int64_t now_ns) {
    const Kernel kernel = {
        .start_us = to_us(open.since_ns),
        .end_us = to_us(now_ns),
        .stream = stream,
        .name = open.event->category == Category::kStep ? NameId{0} : open.event->name,
        .step = open.event->step};
    if (kernel.end_us > kernel.start_us) kernels_.push_back(kernel);
  }

  std::vector<const Event*> active_[5];  ///< By role, the innermost last.
  Open open_[kNumStreams];
  std::vector<Kernel> kernels_;
};

/// When what a recorder still knows begins to be whole.
int64_t whole_since(const std::vector<Event>& events, bool is_complete) {
  if (is_complete) return INT64_MIN;
  const auto first = std::ranges::find(events, Category::kStep, &Event::category);
  return first == events.end() ? INT64_MAX : first->end_ns;
}

}  // namespace

std::string_view name_of(Stream stream) {
  return stream == Stream::kCompute ? "compute" : "transfer";
}

int64_t to_us(int64_t nanoseconds) { return (nanoseconds + 500) / 1000; }

std::vector<Kernel> kernels_of(const std::vector<Event>& events, bool is_complete) {
  const int64_t since_ns = whole_since(events, is_complete);
  std::vector<const Event*> counted;
  for (const Event& event : events) {
    if (role_of(event) == Role::kNone) continue;
    if (event.start_ns >= since_ns && event.end_ns > event.start_ns) counted.push_back(&event);
  }
  // Of what begins at the same time the longer one is outside.
  std::ranges::stable_sort(counted, std::greater(), &Event::end_ns);
  std::vector<Edge> edges;
  for (const Event* event : counted) {
    edges.push_back({event->start_ns, true, role_of(*event), event});
    edges.push_back({event->end_ns, false, role_of(*event), event});
  }
  return Sweep().run(std::move(edges));
}

}  // namespace hanji::trace
