#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// Exponential moving average of parameters, or of a flat part of them given as one tensor, for
/// evaluation.
class MovingAverage {
 public:
  /// Starts as a copy of `parameters`, in at least float32.
  /// Errors  throws kInvalidArgument unless 0 <= decay < 1.
  MovingAverage(std::vector<NamedParameter> parameters, double decay);

  /// Sets average = decay * average + (1 - decay) * parameter. Call it after each step.
  void update();

  /// During its lifetime, the parameters have the values of the average.
  class [[nodiscard]] Applied {
   public:
    explicit Applied(const MovingAverage& average);
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;
    ~Applied();

   private:
    const MovingAverage& average_;
    std::vector<at::Tensor> kept_;
  };
  Applied apply() const { return Applied(*this); }

  /// State to save; write to it to resume.
  const std::vector<NamedParameter>& averages() const { return averages_; }

 private:
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> averages_;
  double decay_;
};

}  // namespace hanji::parallel
