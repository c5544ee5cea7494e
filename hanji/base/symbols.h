#pragma once

#include <string>
#include <string_view>

namespace hanji::base {

/// The stack that report_crashes() wrote, with the functions' names from the symbol tables of the
/// modules on this machine: "  #0 hanji::shm::Engine::wait(unsigned long)+0x3a in hanji". What has
/// no name there stays as it is.
/// Cost    maps each module once; a scan of its symbols per frame.
std::string symbolise(std::string_view stack);

}  // namespace hanji::base
