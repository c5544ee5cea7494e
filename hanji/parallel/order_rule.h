#pragma once

#include <string>

#include "hanji/base/status.h"

namespace hanji::parallel {

/// What ranks must do alike so that their calls match; for errors, which name calls only.
struct OrderRule {
  std::string broken;  ///< What they did: "fully_shard: the ranks compute different units".
  std::string remedy;  ///< What they must do.
};

/// Returns the rule of a handle which function `caller` made.
OrderRule rule_of_handle(const std::string& caller);

/// Throws `error` again: a mismatch of calls as one of the rule, other errors as they are.
[[noreturn]] void throw_with_rule(const Error& error, const OrderRule& rule);

/// Calls `body`, which calls collectives or waits for them.
template <class Body>
void under_rule(const OrderRule& rule, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw_with_rule(error, rule);
  }
}

}  // namespace hanji::parallel
