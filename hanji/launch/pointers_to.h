#pragma once

#include <string>
#include <vector>

namespace hanji::launch {

/// Lists `words` as exec() and posix_spawn() take them, a null last; the characters stay those of `words`.
inline std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace hanji::launch
