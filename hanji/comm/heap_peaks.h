#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace hanji::comm {

class Heap;

/// Returns the most bytes that this rank ever had in use at once, by category: Heap::usage() tells what is
/// in use now.
std::map<std::string, size_t> peak_usage(const Heap& heap);

}  // namespace hanji::comm
