#include "hanji/trace/ranges.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>
#include <string>
#include <unordered_map>

#include "hanji/base/env.h"

// Nothing is looked for beside the path that was asked for: no file in /run, and no libcuda.
#define NVTX_SUPPORT_CUDA_DRIVER_INJECTION_LIBRARY 0
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HANJI_HAS_NVTX 1
#endif

namespace hanji::trace {
namespace {

std::string injection_path() {
  return base::read(base::Variable::kNvtxInjection64Path).value_or("");
}

#ifdef HANJI_HAS_NVTX

/// What the tool knows of this process.
class Domain {
 public:
  Domain() {
    if (injection_path().empty()) return;
    handle_ = nvtxDomainCreateA("hanji");
    if (handle_ == nullptr) return;
    for (int category = 0; category < kNumCategories; ++category) {
      const std::string name(name_of(static_cast<Category>(category)));
      nvtxDomainNameCategoryA(handle_, id_of(static_cast<Category>(category)), name.c_str());
    }
  }

  nvtxDomainHandle_t handle() const { return handle_; }

  nvtxEventAttributes_t event(std::string_view name, Category category, int64_t payload) {
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = id_of(category);
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = payload;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = registered(name);
    return event;
  }

 private:
  /// 0 is a tool's "no category".
  static uint32_t id_of(Category category) { return static_cast<uint32_t>(category) + 1; }

  /// A tool keeps the text once and can filter by it.
  nvtxStringHandle_t registered(std::string_view name) {
    const std::lock_guard lock(mutex_);
    nvtxStringHandle_t& known = strings_[std::string(name)];
    if (known == nullptr) known = nvtxDomainRegisterStringA(handle_, std::string(name).c_str());
    return known;
  }

  nvtxDomainHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<std::string, nvtxStringHandle_t> strings_;
};

/// NVTX has one state for each process, and so has this. Never destroyed: threads may outlive it.
Domain& domain() {
  static Domain& domain = *new Domain;
  return domain;
}

/// Why nothing came of a path.
std::string reason_against(const std::string& path) {
  ::dlerror();
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY);
  if (library == nullptr) return ::dlerror();
  const bool has_entry = ::dlsym(library, "InitializeInjectionNvtx2") != nullptr;
  ::dlclose(library);
  return has_entry ? path + ": its InitializeInjectionNvtx2() refused"
                   : path + ": it has no InitializeInjectionNvtx2()";
}

#endif

}  // namespace

#ifdef HANJI_HAS_NVTX

bool has_range_tool() {
  static const bool has_one = domain().handle() != nullptr;
  return has_one;
}

void Range::push(std::string_view name, Category category, int64_t payload) {
  const nvtxEventAttributes_t event = domain().event(name, category, payload);
  is_pushed_ = nvtxDomainRangePushEx(domain().handle(), &event) >= 0;
}

void Range::pop() { nvtxDomainRangePop(domain().handle()); }

RangeId begin_range(std::string_view name, Category category, int64_t payload) {
  if (!has_range_tool()) return 0;
  const nvtxEventAttributes_t event = domain().event(name, category, payload);
  return nvtxDomainRangeStartEx(domain().handle(), &event);
}

void end_range(RangeId range) {
  if (range != 0) nvtxDomainRangeEnd(domain().handle(), range);
}

#else

bool has_range_tool() { return false; }
void Range::push(std::string_view, Category, int64_t) {}
void Range::pop() {}
RangeId begin_range(std::string_view, Category, int64_t) { return 0; }
void end_range(RangeId) {}

#endif

Status load_range_tool() {
  const std::string path = injection_path();
  if (path.empty() || has_range_tool()) return {};
#ifndef HANJI_HAS_NVTX
  return base::unsupported(
      "NVTX_INJECTION64_PATH is " + path +
      ", but hanji was built without NVTX headers: no ranges are given; build it where "
      "nvtx3/nvToolsExt.h is found, as ./dev build does");
#else
  return base::not_found(
      fmt::format("NVTX_INJECTION64_PATH: the tool was not loaded, so it receives no ranges: {}; "
                  "set it to the tool's library, or "
                  "start hanji by the tool",
                  reason_against(path)));
#endif
}

}  // namespace hanji::trace
