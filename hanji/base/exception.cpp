#include "hanji/base/exception.h"

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <typeinfo>

namespace hanji::base {
namespace {

/// A handler has no other way to know whom to tell.
std::atomic<const UncaughtReport::Tell*> uncaught_tell{nullptr};
std::terminate_handler handler_before = nullptr;

std::string name_of_type(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type.name();
}

/// What libtorch adds behind its message.
std::string_view without_backtrace(std::string_view what) {
  return what.substr(0, what.find("\nException raised from "));
}

[[noreturn]] void on_terminate() {
  const auto* tell = uncaught_tell.exchange(nullptr);
  const std::exception_ptr exception = std::current_exception();
  if (tell != nullptr && exception) (*tell)(describe_exception(exception));
  if (handler_before != nullptr) handler_before();
  std::abort();
}

void install_handler() {
  [[maybe_unused]] static const bool once = [] {
    handler_before = std::set_terminate(on_terminate);
    return true;
  }();
}

}  // namespace

std::string describe_exception(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return name_of_type(typeid(error)) + ": " + std::string(without_backtrace(error.what()));
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text;
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return "an exception of type " + (type == nullptr ? "unknown" : name_of_type(*type));
  }
}

bool is_out_of_memory(const std::exception& error) {
  const std::string_view what = error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         what.find("can't allocate memory") != std::string_view::npos ||
         is_out_of_gpu_memory(error);
}

bool is_out_of_gpu_memory(const std::exception& error) {
  return std::string_view(error.what()).find("CUDA out of memory") != std::string_view::npos;
}

Status status_of_program(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) return out_of_memory(describe_exception(exception));
  } catch (...) {  // described below
  }
  return invalid_argument(describe_exception(exception));
}

UncaughtReport::UncaughtReport(Tell tell) : tell_(std::move(tell)) {
  install_handler();
  const Tell* nobody = nullptr;
  uncaught_tell.compare_exchange_strong(nobody, &tell_);
}

UncaughtReport::~UncaughtReport() {
  const Tell* own = &tell_;
  uncaught_tell.compare_exchange_strong(own, nullptr);
}

}  // namespace hanji::base
