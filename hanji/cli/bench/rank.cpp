#include "hanji/cli/bench/rank.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/dtype.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/cost/select.h"
#include "hanji/shm/reduce.h"
#include "hanji/shm/segment.h"
#include "hanji/world/connect.h"

namespace hanji::cli {
namespace {

using report::BenchAnswer;
using report::BenchPlacement;
using report::BenchRequest;

constexpr int64_t kLine = 64;       // bytes; every buffer starts at one
constexpr int kRoundTrips = 300;    // of a flag, timed together
constexpr int kProbes = 7;          // of which the shortest counts
constexpr int64_t kFlagWords = 32;  // two flags, 128 bytes apart

int64_t whole_lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::byte* bytes_of(at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

at::Tensor view(const at::Tensor& memory, int64_t at, int64_t count, c10::ScalarType type) {
  if (count == 0) return {};
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  return memory.narrow(0, at, count * width).view(type);
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9;
}

}  // namespace

std::string BenchRank::answer(const std::string& line) {
  try {
    if (line == "probe") return probe().to_line();
    if (line.starts_with("limit ")) return limit(line).to_line();
    return measure(report::parse_request(line, world_.size()).or_throw()).to_line();
  } catch (const std::exception& error) {
    return BenchAnswer{.error = error.what()}.to_line();
  }
}

BenchAnswer BenchRank::measure(const BenchRequest& request) {
  const BenchCall call = call_for(request);
  Buffers buffers = buffers_for(request);
  for (at::Tensor& output : buffers.outputs) {
    if (request.check && output.defined()) std::memset(bytes_of(output), 0xA5, output.nbytes());
  }
  for (at::Tensor& input : buffers.inputs) refill(input, request);
  scrub(request.scrub_bytes);
  BenchAnswer answer;
  size_t slot = 0;
  for (int64_t i = 0; i < request.warmup + request.calls; ++i) {
    slot = static_cast<size_t>(i) % buffers.inputs.size();
    at::Tensor& input = buffers.inputs[slot];
    at::Tensor& output = buffers.outputs[slot];
    if (request.refill && i > 0) refill(input, request);
    comm::barrier(world_.group());
    const int64_t start = base::now_ns();
    call(input, output);
    const double seconds = seconds_since(start);
    if (i >= request.warmup) answer.seconds.push_back(seconds);
  }
  at::Tensor& output = buffers.outputs[slot];
  if (request.check && output.defined()) {
    if (request.corrupt == world_.rank()) bytes_of(output)[output.nbytes() / 2] ^= std::byte{1};
    answer.wrong = num_wrong(output, request);
  }
  return answer;
}

BenchCall BenchRank::call_for(const BenchRequest& request) {
  if (request.engine == "c10d_gloo") {
    if (!gloo_alone_) gloo_alone_.emplace(world_.group());
    return gloo_alone_->call_of(request.call);
  }
  if (request.engine == "gloo" && !gloo_) {
    comm::GroupOptions options;
    options.bits = comm::Bits::kFast;
    gloo_ = comm::gloo::make_group(world_.group(), options);
  }
  return call_of_group(request.call, request.engine == "gloo" ? *gloo_ : world_.group());
}

at::Tensor& BenchRank::memory(BenchPlacement placement, int64_t bytes) {
  at::Tensor& memory = memory_[placement];
  if (!memory.defined() || memory.numel() < bytes) {
    memory = at::Tensor();  // first free what is too small
    memory = placement == BenchPlacement::kHeap
                 ? world_.heap().empty({std::max<int64_t>(bytes, 1)}, at::kByte, "bench")
                 : at::empty({std::max<int64_t>(bytes, 1)}, at::kByte);
    std::memset(memory.mutable_data_ptr(), 0, memory.nbytes());
  }
  return memory;
}

BenchRank::Buffers BenchRank::buffers_for(const BenchRequest& request) {
  const report::BenchBuffers shape = report::buffers_of(request.call, world_.rank());
  const c10::ScalarType type = comm::to_scalar_type(request.call.dtype);
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  const bool in_place = request.call.in_place;
  const int64_t second = in_place ? 0 : whole_lines(shape.input * width);
  const int64_t stride = whole_lines(
      std::max<int64_t>(in_place ? shape.together() * width : second + shape.output * width, 1));
  at::Tensor& all = memory(request.placement, stride * request.slots);
  // In place the shorter buffer lies in the longer one.
  const int64_t inset = in_place ? shape.offset * width : 0;
  const bool input_is_shorter = shape.input < shape.output;
  Buffers buffers;
  for (int64_t slot = 0; slot < request.slots; ++slot) {
    const int64_t base = slot * stride;
    buffers.inputs.push_back(view(all, base + (input_is_shorter ? inset : 0), shape.input, type));
    buffers.outputs.push_back(
        view(all, base + second + (input_is_shorter ? 0 : inset), shape.output, type));
  }
  return buffers;
}

const report::ValueTile& BenchRank::tile(const BenchRequest& request, int row) {
  const std::string name = request.table + std::string(base::name_of(request.call.dtype));
  if (table_path_ != name) {
    const std::string text = base::read_file(request.table).or_throw();
    table_.resize(text.size() / sizeof(double));
    std::memcpy(table_.data(), text.data(), table_.size() * sizeof(double));
    tiles_.clear();
    table_path_ = name;
  }
  if (const auto found = tiles_.find(row); found != tiles_.end()) return found->second;
  constexpr int64_t kPeriod = report::kValuePeriod;
  const at::Tensor values =
      at::from_blob(table_.data() + row * kPeriod, {kPeriod}, at::TensorOptions(at::kDouble))
          .to(comm::to_scalar_type(request.call.dtype));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(values.const_data_ptr()),
                                         values.nbytes());
  return tiles_.emplace(row, report::ValueTile(bytes, values.element_size())).first->second;
}

void BenchRank::refill(at::Tensor& input, const BenchRequest& request) {
  if (!input.defined()) return;
  tile(request, world_.rank()).fill(bytes_of(input), input.numel(), 0);
}

void BenchRank::scrub(int64_t bytes) {
  if (bytes == 0) return;
  scrubbed_.resize(static_cast<size_t>(bytes));
  std::memset(scrubbed_.data(), static_cast<char>(scrubbed_[0] + 1), scrubbed_.size());
}

int64_t BenchRank::num_wrong(const at::Tensor& output, const BenchRequest& request) {
  const auto* values = static_cast<const std::byte*>(output.const_data_ptr());
  int64_t wrong = 0;
  for (const auto& part : report::expected_parts(request.call, world_.rank())) {
    wrong += tile(request, part.row)
                 .num_wrong(values + part.begin * output.element_size(), part.count, part.phase);
  }
  return wrong;
}

BenchAnswer BenchRank::limit(const std::string& line) {
  std::istringstream words(line);
  std::string verb, place;
  int64_t bytes = 0, calls = 0;
  words >> verb >> place >> bytes >> calls;
  at::Tensor& own =
      memory(place == "heap" ? BenchPlacement::kHeap : BenchPlacement::kPrivate, bytes);
  const void* const sources[] = {own.const_data_ptr(), own.const_data_ptr()};
  void* const destinations[] = {own.mutable_data_ptr()};
  const int tree[] = {0, 1, -1};
  BenchAnswer answer;
  for (; calls > 0; --calls) {
    comm::barrier(world_.group());
    const int64_t start = base::now_ns();
    shm::reduce(DType::kInt32, schedule::ReduceOp::kMax, sources, tree, destinations, bytes / 4);
    answer.seconds.push_back(seconds_since(start));
  }
  return answer;
}

BenchAnswer BenchRank::probe() {
  if (flag_ == nullptr) {
    const shm::Segment& segment = *world_.heap().segment();
    at::Tensor offset = at::full({1}, 0, at::kLong);
    if (world_.rank() == 0) {
      flags_ = world_.heap().zeros({kFlagWords}, at::kLong, "bench");
      offset.fill_(static_cast<int64_t>(bytes_of(flags_) - segment.data()));
    }
    comm::broadcast(offset, 0, world_.group()).wait();
    flag_ = reinterpret_cast<uint64_t*>(segment.data() + offset.item<int64_t>());
  }
  comm::barrier(world_.group());
  BenchAnswer answer;
  if (world_.rank() > 1) return answer;
  const bool asks = world_.rank() == 0;
  const std::atomic_ref<uint64_t> mine(flag_[asks ? 0 : kFlagWords / 2]);
  const std::atomic_ref<uint64_t> theirs(flag_[asks ? kFlagWords / 2 : 0]);
  uint64_t turn = mine.load();
  double least = 1;
  for (int probe = 0; probe < kProbes; ++probe) {
    const int64_t start = base::now_ns();
    for (int trip = 0; trip < kRoundTrips; ++trip) {
      ++turn;
      if (asks) mine.store(turn, std::memory_order_release);
      while (theirs.load(std::memory_order_acquire) != turn) __builtin_ia32_pause();
      if (!asks) mine.store(turn, std::memory_order_release);
    }
    least = std::min(least, seconds_since(start) / kRoundTrips);
  }
  if (asks) answer.seconds.push_back(least);
  return answer;
}

int serve_bench(const std::string& folder) {
  world::ConnectOptions options;
  options.configure = [](const std::string& plan_json, comm::GroupOptions& group) {
    const base::Json plan = base::parse_json(plan_json).or_throw();
    group.deadline = std::chrono::seconds(plan.at("timeout_seconds").get<int64_t>());
    const auto rates = cost::rates_from_json(base::dump(plan.at("rates"))).or_throw();
    group.chooser = std::make_shared<cost::Chooser>(rates);
  };
  world::World world = world::connect(options);
  BenchRank rank(world);
  std::ifstream requests(fmt::format("{}/request.{}", folder, world.rank()));
  std::ofstream answers(fmt::format("{}/answer.{}", folder, world.rank()));
  for (std::string line; std::getline(requests, line);) {
    answers << rank.answer(line) << std::endl;
  }
  return 0;
}

}  // namespace hanji::cli
