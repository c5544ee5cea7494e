#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "hanji/base/limits.h"
#include "hanji/base/status.h"

namespace hanji::base {

/// A thread that runs `body`, which may take a std::stop_token.
/// Errors  throws Error as no_more_processes(), where the system grants none.
template <class Body>
std::jthread start_thread(std::string_view what, Body&& body) {
  try {
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error(no_more_processes(what, error.code().value()));
  }
}

}  // namespace hanji::base
