// A stand-in for a profiling tool: injected by NVTX_INJECTION64_PATH, it writes what it is told, one line each, to the
// file of NVTX_TOOL_OUT with the number of the process behind it.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

FILE* out = nullptr;
std::atomic<uint64_t> num_ranges{0};

const char* text_of(const nvtxEventAttributes_t* event) {
  // The handle of a string is where it lies.
  return event->messageType == NVTX_MESSAGE_TYPE_REGISTERED
             ? reinterpret_cast<const std::string*>(event->message.registered)->c_str()
             : event->message.ascii;
}

void write_event(const char* what, uint64_t id, const nvtxEventAttributes_t* event) {
  std::fprintf(out, "%s %llu %u %lld %s\n", what, static_cast<unsigned long long>(id),
               event->category, static_cast<long long>(event->payload.llValue), text_of(event));
}

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  std::fprintf(out, "domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&out);
}

void NVTX_API name_category(nvtxDomainHandle_t, uint32_t category, const char* name) {
  std::fprintf(out, "category %u %s\n", category, name);
}

nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}

int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  write_event("push", 0, event);
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t) {
  std::fprintf(out, "pop\n");
  return 0;
}

nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  const uint64_t id = ++num_ranges;
  write_event("start", id, event);
  return id;
}

void NVTX_API end(nvtxDomainHandle_t, nvtxRangeId_t id) {
  std::fprintf(out, "end %llu\n", static_cast<unsigned long long>(id));
}

template <class Function>
void set(NvtxFunctionTable table, unsigned int count, unsigned int index, Function function) {
  if (index < count) *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const char* path = std::getenv("NVTX_TOOL_OUT");
  if (path == nullptr) return 0;  // a tool that refuses
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int count = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &count) == 0) {
    return 0;
  }
  out = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
  if (out == nullptr) return 0;
  std::setvbuf(out, nullptr, _IOLBF, 0);
  set(table, count, NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  set(table, count, NVTX_CBID_CORE2_DomainNameCategoryA, &name_category);
  set(table, count, NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  set(table, count, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(table, count, NVTX_CBID_CORE2_DomainRangePop, &pop);
  set(table, count, NVTX_CBID_CORE2_DomainRangeStartEx, &start);
  set(table, count, NVTX_CBID_CORE2_DomainRangeEnd, &end);
  return 1;
}
