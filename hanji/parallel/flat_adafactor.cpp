#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_optimizer.h"

namespace hanji::parallel {
namespace {

/// A parameter as Adafactor sees it: matrices of rows x columns, or a vector.
struct Factored {
  int64_t matrices = 1, rows = 1, columns = 1;
  bool is_vector = false;
  int64_t offset = 0;  ///< Of its row sums, column sums and sum of p^2 in the vector of all sums.

  explicit Factored(const std::vector<int64_t>& shape) : is_vector(shape.size() < 2) {
    columns = shape.empty() ? 1 : shape.back();
    if (is_vector) return;
    rows = shape[shape.size() - 2];
    for (size_t i = 0; i + 2 < shape.size(); ++i) matrices *= shape[i];
  }
  int64_t num_rows() const { return is_vector ? 0 : matrices * rows; }
  int64_t num_columns() const { return is_vector ? 0 : matrices * columns; }
  int64_t numel() const { return matrices * rows * columns; }
};

class Adafactor : public FlatOptimizer {
 public:
  Adafactor(FlatPart part, const AdafactorOptions& options, SumOverParts sum)
      : part_(std::move(part)), options_(options), sum_(std::move(sum)) {
    if (options_.epsilon1 < 0) {
      options_.epsilon1 = part_.parameters.scalar_type() == at::kDouble
                              ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
    }
    for (const FlatPiece& piece : part_.pieces) add(piece);
    variances_ = at::zeros({num_variances_}, at::kDouble);
  }

  void step(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    ++num_updates_;
    part_.parameters.scalar_type() == at::kDouble ? update<double>(learning_rate, gradient_divisor)
                                                  : update<float>(learning_rate, gradient_divisor);
  }
  std::vector<NamedParameter> state() const override { return {{"variances", variances_}}; }
  bool is_element_wise() const override { return false; }

 private:
  void add(const FlatPiece& piece) {
    Factored& shape = shapes_.emplace_back(piece.shape);
    shape.offset = num_variances_;
    num_variances_ += shape.is_vector ? piece.range.size() : shape.num_rows() + shape.num_columns();
  }

  /// Per piece: sums of squared gradients by row and by column, then the sum of squared parameters.
  template <class T>
  at::Tensor local_sums(double divisor) const {
    int64_t count = 0;
    for (const Factored& shape : shapes_) count += shape.num_rows() + shape.num_columns() + 1;
    at::Tensor sums = at::zeros({count}, at::kDouble);
    auto* out = sums.mutable_data_ptr<double>();
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Factored& shape = shapes_[i];
      const FlatPiece& piece = part_.pieces[i];
      double* columns = out + shape.num_rows();
      double* squares = columns + shape.num_columns();
      const T* gradient = part_.gradients.template const_data_ptr<T>() + piece.range.begin;
      const T* parameter = part_.parameters.template const_data_ptr<T>() + piece.range.begin;
      for (int64_t k = 0; k < piece.range.size(); ++k) {
        *squares += static_cast<double>(parameter[k]) * parameter[k];
        if (shape.is_vector) continue;
        const double g = gradient[k] / divisor;
        const int64_t row = (piece.first + k) / shape.columns;
        out[row] += g * g;
        columns[row / shape.rows * shape.columns + (piece.first + k) % shape.columns] += g * g;
      }
      out = squares + 1;
    }
    return sums;
  }

  /// Means of squares into the running variances; gives the root mean square of each parameter.
  std::vector<double> absorb(const at::Tensor& sums, double weight) {
    const auto* in = sums.const_data_ptr<double>();
    auto* variances = variances_.mutable_data_ptr<double>();
    std::vector<double> scales;
    for (const Factored& shape : shapes_) {
      const int64_t factors = shape.num_rows() + shape.num_columns();
      for (int64_t k = 0; k < factors; ++k) {
        const int64_t length = k < shape.num_rows() ? shape.columns : shape.rows;
        double& variance = variances[shape.offset + k];
        variance += weight * (in[k] / static_cast<double>(length) - variance);
      }
      in += factors;
      scales.push_back(std::sqrt(*in++ / static_cast<double>(shape.numel())));
    }
    return scales;
  }

  /// The update of a piece before clipping, into its gradients; gives the sum of its squares.
  template <class T>
  double make_update(size_t i, double divisor, double weight) {
    const Factored& shape = shapes_[i];
    const FlatPiece& piece = part_.pieces[i];
    auto* variances = variances_.mutable_data_ptr<double>() + shape.offset;
    T* gradient = part_.gradients.template mutable_data_ptr<T>() + piece.range.begin;
    const std::vector<double> means = row_means(shape, variances);
    double squares = 0;
    for (int64_t k = 0; k < piece.range.size(); ++k) {
      const double g = gradient[k] / divisor;
      double variance = 0;
      if (shape.is_vector) {
        variances[k] += weight * (g * g - variances[k]);
        variance = variances[k];
      } else {
        const int64_t row = (piece.first + k) / shape.columns;
        const int64_t matrix = row / shape.rows;
        const int64_t column = matrix * shape.columns + (piece.first + k) % shape.columns;
        variance = variances[row] * variances[shape.num_rows() + column] / means[matrix];
      }
      const double floor = options_.epsilon1 * options_.epsilon1;
      const double update =
          g / std::sqrt(variance > floor || variance != variance ? variance : floor);
      gradient[k] = static_cast<T>(update);
      squares += update * update;
    }
    return squares;
  }

  std::vector<double> row_means(const Factored& shape, const double* variances) const {
    std::vector<double> means;
    for (int64_t m = 0; m < (shape.is_vector ? 0 : shape.matrices); ++m) {
      double sum = 0;
      for (int64_t r = 0; r < shape.rows; ++r) sum += variances[m * shape.rows + r];
      means.push_back(std::max(sum / static_cast<double>(shape.rows), options_.epsilon1));
    }
    return means;
  }

  template <class T>
  void update(double learning_rate, double divisor) {
    const auto step = static_cast<double>(num_updates_);
    const double weight = std::pow(step, options_.beta2_decay);
    at::Tensor sums = local_sums<T>(divisor);
    if (sum_) sum_(sums);
    const std::vector<double> scales = absorb(sums, weight);
    at::Tensor squares = at::zeros({static_cast<int64_t>(shapes_.size())}, at::kDouble);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      squares.mutable_data_ptr<double>()[i] = make_update<T>(i, divisor, weight);
    }
    if (sum_) sum_(squares);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const ParameterGroup& group = part_.pieces[i].group;
      const double rate = learning_rate * group.learning_rate_factor;
      const double rms =
          std::sqrt(squares.const_data_ptr<double>()[i] / static_cast<double>(shapes_[i].numel()));
      const double alpha =
          std::max(options_.epsilon2, scales[i]) * std::min(rate, 1 / std::sqrt(step));
      apply<T>(i, alpha / std::max(1.0, rms / options_.clip_threshold),
               1 - rate * group.weight_decay);
    }
  }

  template <class T>
  void apply(size_t i, double rate, double keep) {
    const layout::Range range = part_.pieces[i].range;
    T* parameter = part_.parameters.template mutable_data_ptr<T>() + range.begin;
    const T* gradient = part_.gradients.template const_data_ptr<T>() + range.begin;
    for (int64_t k = 0; k < range.size(); ++k) {
      parameter[k] = static_cast<T>(parameter[k] * keep - rate * gradient[k]);
    }
  }

  FlatPart part_;
  AdafactorOptions options_;
  SumOverParts sum_;
  std::vector<Factored> shapes_;
  int64_t num_variances_ = 0;
  at::Tensor variances_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> flat_adafactor(FlatPart part, const AdafactorOptions& options,
                                              SumOverParts sum) {
  check_reals_in_memory(part, "flat_adafactor");
  return std::make_unique<Adafactor>(std::move(part), options, std::move(sum));
}

}  // namespace hanji::parallel
