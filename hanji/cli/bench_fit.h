#pragma once

namespace hanji::cli {

struct BenchFitOptions {
  int ranks = 0;  ///< 0: one per usable core, at least 2.
  bool as_json = false;
};

/// `hanji bench --fit`: times calls, fits costs, stores them, and prints what they are and how far
/// off. Errors: throws Error.
int bench_fit(const BenchFitOptions& options);

}  // namespace hanji::cli
