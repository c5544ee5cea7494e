#pragma once

#include <cstdint>
#include <vector>

namespace hanji::report {

/// The value in the middle; of an even number of values the mean of the two there. Needs a value.
double median(std::vector<double> values);

/// The smallest value that at least `share` of the values do not exceed. Needs a value.
double quantile(std::vector<double> values, double share);

struct Interval {
  double low = 0;
  double high = 0;
  double confidence = 0;  ///< That the median of what the values were drawn from lies in it.
};

/// The narrowest pair of mirrored order statistics that holds the median with `confidence`, or the
/// smallest and largest value where there are too few.
/// Source  Conover, "Practical Nonparametric Statistics", 3rd ed., section 3.2.
Interval median_interval(std::vector<double> values, double confidence = 0.95);

/// How likely so one-sided an outcome of `wins` and `losses` is where both are equally likely; 1
/// without any. Ties belong to neither.
/// Source  the two-sided sign test: Conover, section 3.4.
double sign_test(int wins, int losses);

}  // namespace hanji::report
