#include "hanji/comm/internal/submit.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/call_batch.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm {
namespace {

/// "all_reduce 'wte.weight' (train.cpp:12)".
std::string describe(const Request& request) {
  const std::string label = request.label.empty() ? "" : fmt::format(" '{}'", request.label);
  const std::filesystem::path file = request.call_site.file_name();
  return fmt::format("{}{} ({}:{})", schedule::name_of(request.routine), label,
                     file.filename().string(), request.call_site.line());
}

[[noreturn]] void refuse_unsupported(const Request& request, const std::string& why) {
  throw Error(base::unsupported(describe(request) + ": " + why));
}

/// What a request writes. The caller of a result holds the tensor beside the request, so that it
/// can be looked at once the request has gone, without counting a reference more.
at::TensorImpl* written_by(const Request& request) {
  const at::Tensor& written = request.copy_out.defined() ? request.copy_out : request.output;
  return written.unsafeGetTensorImpl();
}

/// What autograd saved of the tensor is no longer true.
void bump_version(at::TensorImpl* written) {
  if (written != at::UndefinedTensorImpl::singleton() && !written->is_inference()) {
    written->bump_version();
  }
}

const char* begin_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

}  // namespace

void refuse(const Request& request, const std::string& why) {
  throw Error(base::invalid_argument(describe(request) + ": " + why));
}

Request open_request(schedule::Routine routine, const CallOptions& options,
                     const std::source_location& call_site) {
  Request request;
  request.routine = routine;
  request.tag = options.tag;
  request.deadline = options.deadline;
  request.label = options.label;
  request.call_site = call_site;
  return request;
}

Request open_request(schedule::Routine routine, const AllReduceOptions& options,
                     const std::source_location& call_site) {
  Request request =
      open_request(routine, CallOptions{options.tag, options.label, options.deadline}, call_site);
  request.op = options.op;
  request.factor = options.factor;
  return request;
}

void check_tensor(const at::Tensor& tensor, std::string_view role, const Request& request,
                  const Group& group) {
  if (!tensor.defined()) refuse(request, fmt::format("the {} is an undefined tensor", role));
  if (tensor.layout() != c10::Layout::Strided) {
    refuse_unsupported(request, fmt::format("the {} has layout {}; collectives move strided "
                                            "tensors only: pass tensor.to_dense()",
                                            role, fmt::streamed(tensor.layout())));
  }
  if (!group.serves(tensor.device())) {
    refuse_unsupported(
        request,
        fmt::format("the {} is on {}, which engine {} of group {} does not move; copy it with "
                    ".to(at::kCPU), or use a group over a c10d backend of that device",
                    role, tensor.device().str(), group.engine(), group.name()));
  }
  if (!tensor.is_contiguous()) {
    refuse(request, fmt::format("the {} of sizes {} and strides {} is not contiguous; call it on "
                                "tensor.contiguous() and copy the result back",
                                role, tensor.sizes(), tensor.strides()));
  }
  if (!tensor.is_leaf()) {
    refuse(request, fmt::format("the {} is part of an autograd graph, and nobody would "
                                "differentiate this call; pass tensor.detach()",
                                role));
  }
}

DType reduced_dtype(c10::ScalarType type, const Request& request) {
  try {
    return to_dtype(type);
  } catch (const Error& error) {
    refuse_unsupported(request, error.what());
  }
}

void check_count(const at::Tensor& tensor, std::string_view role, int64_t expected,
                 const Request& request) {
  if (tensor.numel() != expected) {
    refuse(request,
           fmt::format("the {} has {} elements and must have {}", role, tensor.numel(), expected));
  }
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const char* x = begin_of(a);
  const char* y = begin_of(b);
  return x < y + b.nbytes() && y < x + a.nbytes();
}

void check_pair(const Request& request, int64_t input_offset, int64_t output_offset) {
  const at::Tensor& input = request.input;
  const at::Tensor& output = request.output;
  if (input.scalar_type() != output.scalar_type() || input.device() != output.device()) {
    refuse(request, fmt::format("the input is {} on {} and the output {} on {}; they must agree",
                                c10::toString(input.scalar_type()), input.device().str(),
                                c10::toString(output.scalar_type()), output.device().str()));
  }
  const auto element = static_cast<int64_t>(input.element_size());
  const bool in_place =
      begin_of(input) + input_offset * element == begin_of(output) + output_offset * element;
  if (overlap(input, output) && !in_place) {
    refuse(request, "input and output overlap; only a call exactly in place may share memory");
  }
}

Work submit(Request&& request, const Group& group) {
  at::TensorImpl* written = written_by(request);
  const auto& state = group.state();
  if (const auto batch = state->batch()) {
    batch->add({state, std::move(request)});
    bump_version(written);
    return Work(batch);
  }
  const Submitted submitted = state->submit(std::move(request));
  bump_version(written);
  return {state, submitted.sequence, submitted.ticket};
}

Submitted start(Request& request, const Choice& choice, const Group& group) {
  at::TensorImpl* written = written_by(request);
  const Submitted submitted = group.state()->start(request, choice);
  bump_version(written);
  return submitted;
}

Work submit_if_called(Request request, const Group& group) {
  at::TensorImpl* written = written_by(request);
  const Submitted submitted = group.state()->submit_if_called(std::move(request));
  if (submitted.sequence == 0) return {};
  bump_version(written);
  return {group.state(), submitted.sequence, submitted.ticket};
}

Work submit_message(Request&& request, const P2pRoute& route) {
  if (const auto batch = route.called_on.state()->batch()) {
    bump_version(written_by(request));
    batch->add({route.channel.state(), std::move(request), route.ends});
    return Work(batch);
  }
  Work work = submit(std::move(request), route.channel);
  work.name_ends(route.ends);
  return work;
}

}  // namespace hanji::comm
