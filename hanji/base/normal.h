#pragma once

namespace hanji::base {

/// The quantile function of the standard normal distribution at `p` in (0, 1).
///
/// Result  relative error about 1e-16.
/// Source  Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37(3):477-484, 1988.
double normal_quantile(double p);

}  // namespace hanji::base
