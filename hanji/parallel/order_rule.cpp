#include "hanji/parallel/order_rule.h"

namespace hanji::parallel {

OrderRule rule_of_handle(const std::string& caller) {
  return {
      caller + ": the ranks use different handles, or in another order",
      "call backward(), step() and the like of the same handles in the same order on every rank"};
}

/// Within another rule it says enough. An engine's own last words tell the same of calls.
void throw_with_rule(const Error& error, const OrderRule& rule) {
  std::string calls = error.what();
  if (error.code() != base::Code::kMismatch || calls.find(rule.broken) != std::string::npos) throw;
  if (const size_t last = calls.rfind("; every rank must "); last != std::string::npos) {
    calls.resize(last);
  }
  throw Error(base::mismatch(rule.broken + ": " + calls + "; " + rule.remedy));
}

}  // namespace hanji::parallel
