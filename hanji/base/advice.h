#pragma once

#include <string>
#include <string_view>

namespace hanji::base {

/// What the user of a path does about an error of the system, as "check the path"; empty for other errors.
std::string_view advice_for(int error);

/// `message` with `advice` instead of the general advice that from_errno() ended it with: "MESSAGE; ADVICE".
std::string with_advice(std::string_view message, std::string_view advice);

}  // namespace hanji::base
