#include "hanji/comm/prepare.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "hanji/comm/host_values.h"
#include "hanji/comm/internal/description.h"
#include "hanji/comm/internal/shares.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/submit.h"
#include "hanji/comm/new_tags.h"
#include "hanji/shm/tag.h"

namespace hanji::comm {

using schedule::Routine;

struct Call::Prepared {
  Group group;
  Request request;  // without tensors but in start()
  std::shared_ptr<const Choice> choice;
  c10::ScalarType dtype;
  c10::Device device;
  Extents extents;       // of the caller's elements
  uint64_t last = 0;     // sequence of the last start
  Work last_in_batch{};  // of one that a batch held back
  at::Tensor bound_output{}, bound_input{};

  /// Gives the request the tensors that this rank gives and gets, checked.
  void take(const at::Tensor& output, const at::Tensor& input);
  Work submit();

 private:
  bool fits(const at::Tensor& tensor, int64_t elements) const;
  void check(const at::Tensor& tensor, std::string_view role, int64_t elements) const;
  void check_place() const;
};

namespace {

/// Takes the tensors back from a request that stays.
class Borrowed {
 public:
  explicit Borrowed(Request& request) : request_(request) {}
  ~Borrowed() {
    request_.input.reset();
    request_.output.reset();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  Request& request_;
};

size_t uneven_counts(const Request& request, const Group& group) {
  const auto size = static_cast<size_t>(group.size());
  switch (request.routine) {
    case Routine::kAllGather:
    case Routine::kGather:
    case Routine::kReduceScatter:
    case Routine::kScatter: return size;
    case Routine::kAllToAll: return size * size;
    default: return 1;
  }
}

void set_prepared_counts(Request& request, c10::ScalarType dtype,
                         const std::vector<int64_t>& counts, const Group& group) {
  if (request.routine == Routine::kSend || request.routine == Routine::kTreeReduce) {
    refuse(request,
           "is not prepared; a send is a message, and a tree_reduce takes the step list "
           "that was made of its tree");
  }
  if (request.routine == Routine::kBarrier) {
    if (!counts.empty()) refuse(request, "moves nothing and takes no counts");
    return;
  }
  check_root(request, group);
  const bool even = counts.size() == 1;
  const size_t uneven = uneven_counts(request, group);
  if (!even && uneven == 1) {
    refuse(request, fmt::format("{} counts are given; all ranks have the same number of elements: "
                                "give one",
                                counts.size()));
  }
  check_counts(counts, even ? 1 : static_cast<int64_t>(uneven), request);
  if (request.in_place && !even)
    refuse(request, "uneven slices cannot change places in one buffer");
  const auto set = schedule::reduces(request.routine) ? set_reduced : set_shares;
  set(request, dtype, even ? counts[0] : 0, even ? std::vector<int64_t>{} : counts);
}

/// Every rank sees the same descriptions, so all refuse together.
Status compare_across_ranks(const Request& request, std::string_view way, const Group& group) {
  constexpr int64_t kBytes = sizeof(Description);
  const Description mine = describe(request, way, group.sequence() + 1);
  const at::Tensor one = at::empty({kBytes}, at::kByte);
  std::memcpy(one.data_ptr(), &mine, kBytes);
  at::Tensor all = at::empty({kBytes * group.size()}, at::kByte);
  group.state()->run_uncounted([&] {
    all_gather_on_host(all, one, group, {.label = "prepare", .deadline = request.deadline},
                       request.call_site);
  });
  std::vector<Description> ranks(static_cast<size_t>(group.size()));
  std::memcpy(ranks.data(), all.const_data_ptr(), ranks.size() * kBytes);
  return compare(ranks, group.options().rank_names).at("prepare on group " + group.name());
}

/// In elements of `dtype`, of which some move as several.
Extents extents_in(c10::ScalarType dtype, const Request& request, const Group& group) {
  Extents extents = extents_of(request, group.rank(), group.size());
  const auto several = static_cast<int64_t>(c10::elementSize(dtype) / size_of(request.dtype));
  if (several <= 1) return extents;
  for (int64_t* elements : {&extents.input, &extents.output}) {
    if (*elements != Extents::kNone) *elements /= several;
  }
  extents.input_offset /= several;
  extents.output_offset /= several;
  return extents;
}

}  // namespace

// What almost every tensor is; a leaf that requires a gradient takes the long way and passes too.
bool Call::Prepared::fits(const at::Tensor& tensor, int64_t elements) const {
  return tensor.defined() && tensor.scalar_type() == dtype && tensor.numel() == elements &&
         tensor.device() == device && tensor.layout() == c10::Layout::Strided &&
         tensor.is_contiguous() && !tensor.requires_grad();
}

void Call::Prepared::check(const at::Tensor& tensor, std::string_view role,
                           int64_t elements) const {
  if (fits(tensor, elements)) return;
  check_tensor(tensor, role, request, group);
  if (tensor.scalar_type() != dtype) {
    refuse(request, fmt::format("the {} is {} and the call was prepared for {}", role,
                                c10::toString(tensor.scalar_type()), c10::toString(dtype)));
  }
  check_count(tensor, role, elements, request);
}

void Call::Prepared::take(const at::Tensor& output, const at::Tensor& input) {
  const bool gets = extents.output != Extents::kNone;
  const bool gives = extents.input != Extents::kNone;
  const bool is_one = gets && gives && extents.input == extents.output && input.is_same(output);
  if (gets) check(output, "output", extents.output);
  if (gives && !is_one) check(input, "input", extents.input);
  if (gets) request.output = output;
  if (gives) {
    request.input = input;
  } else if (request.routine == Routine::kBroadcast) {
    request.input = output;
  }
  if (!gets || !gives) return;
  if (!is_one) check_pair(request, extents.input_offset, extents.output_offset);
  if (request.routine == Routine::kAllToAll) check_place();
}

void Call::Prepared::check_place() const {
  const bool is_place = request.input.const_data_ptr() == request.output.const_data_ptr();
  if (request.in_place == is_place || request.count == 0) return;
  refuse(request, request.in_place ? "was prepared in place, and input and output are two buffers"
                                   : "input and output are one buffer; prepare it in place");
}

Work Call::Prepared::submit() {
  const auto& state = group.state();
  if (state->batch()) {
    last_in_batch = comm::submit(Request(request), group);
    return last_in_batch;
  }
  const Submitted submitted = comm::start(request, *choice, group);
  last = submitted.sequence;
  return {state, submitted.sequence, submitted.ticket};
}

Call::Call() = default;
Call::Call(Call&&) noexcept = default;
Call& Call::operator=(Call&&) noexcept = default;
Call::~Call() = default;
Call::Call(std::unique_ptr<Prepared> prepared) : prepared_(std::move(prepared)) {}

Call::Prepared& Call::prepared() const {
  if (prepared_) return *prepared_;
  throw Error(
      base::invalid_argument("start of a Call that was not prepared; assign it what "
                             "prepare() returns"));
}

void Call::check_closed(const std::source_location& call_site) {
  Prepared& call = prepared();
  call.request.call_site = call_site;
  if (call.group.state()->done(call.last) && call.last_in_batch.done()) return;
  refuse(call.request,
         "its last start is still open; wait for that Work first, or prepare a second call");
}

Work Call::start(at::Tensor& output, const at::Tensor& input, std::source_location call_site) {
  check_closed(call_site);
  Prepared& call = *prepared_;
  const Borrowed borrowed(call.request);
  call.take(output, input);
  return call.submit();
}

Work Call::start(at::Tensor& tensor, std::source_location call_site) {
  return start(tensor, tensor, call_site);
}

void Call::bind(at::Tensor& output, const at::Tensor& input, std::source_location call_site) {
  check_closed(call_site);
  Prepared& call = *prepared_;
  const Borrowed borrowed(call.request);
  call.take(output, input);
  call.bound_output = output;
  call.bound_input = input;
}

Work Call::start(std::source_location call_site) {
  Prepared& call = prepared();
  const bool bound = call.bound_output.defined() || call.bound_input.defined();
  if (!bound && call.request.routine != Routine::kBarrier) {
    call.request.call_site = call_site;
    refuse(call.request, "no tensors are bound; give them to start(), or to bind() before it");
  }
  return start(call.bound_output, call.bound_input, call_site);
}

uint64_t new_tags(const Group& group) { return shm::first_tag(group.state()->next_maker()); }

Call prepare(Routine routine, c10::ScalarType dtype, const std::vector<int64_t>& counts,
             const Group& group, const PrepareOptions& options, std::source_location call_site) {
  const AllReduceOptions said{options.op, options.tag, options.label, options.deadline,
                              options.factor};
  Request request = open_request(routine, said, call_site);
  if (schedule::has_root(routine)) request.root = options.root;
  request.in_place = options.in_place && routine == Routine::kAllToAll;
  if (group.state()->batch()) refuse(request, "is prepared before a batch of calls, not inside it");
  request.tag ^= new_tags(group);
  std::shared_ptr<const Choice> choice;
  std::optional<Error> refused;
  try {
    set_prepared_counts(request, dtype, counts, group);
    choice = group.state()->prepare(request);
  } catch (const Error& error) {
    refused = error;  // told after the others know of it
  }
  const Status alike = compare_across_ranks(request, choice ? say_way(*choice) : "refused", group);
  if (refused) throw Error(*refused);
  base::throw_if_error(alike);
  const Extents extents = extents_in(dtype, request, group);
  return Call(std::make_unique<Call::Prepared>(Call::Prepared{
      group, std::move(request), std::move(choice), dtype, device_of(group), extents}));
}

}  // namespace hanji::comm
