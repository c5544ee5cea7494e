#include <ATen/core/grad_mode.h>

#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_optimizer.h"

namespace hanji::parallel {
namespace {

/// What one element takes part in, in the dtype of the parameters.
template <class T>
struct LionRates {
  T learning_rate, keep, beta1, beta2, divisor;
};

template <class T>
void lion_update(T* parameter, const T* gradient, T* momentum, int64_t count,
                 const LionRates<T>& rates) {
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] / rates.divisor;
    const T direction = rates.beta1 * momentum[i] + (1 - rates.beta1) * g;
    const T sign = static_cast<T>(direction > 0) - static_cast<T>(direction < 0);
    // Not a number stays one: a sign would hide that the gradient has overflowed.
    const T update = direction == direction ? sign : direction;
    parameter[i] = parameter[i] * rates.keep - rates.learning_rate * update;
    momentum[i] = rates.beta2 * momentum[i] + (1 - rates.beta2) * g;
  }
}

class Lion : public FlatOptimizer {
 public:
  Lion(FlatPart part, const LionOptions& options)
      : part_(std::move(part)), options_(options), momentum_(zero_state(part_)) {}

  void step(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    ++num_updates_;
    part_.parameters.scalar_type() == at::kDouble ? update<double>(learning_rate, gradient_divisor)
                                                  : update<float>(learning_rate, gradient_divisor);
  }
  std::vector<NamedParameter> state() const override { return {{"momentum", momentum_}}; }

 private:
  template <class T>
  void update(double learning_rate, double divisor) {
    for (const FlatPiece& piece : part_.pieces) {
      const double rate = learning_rate * piece.group.learning_rate_factor;
      const LionRates<T> rates{
          static_cast<T>(rate), static_cast<T>(1 - rate * piece.group.weight_decay),
          static_cast<T>(options_.beta1), static_cast<T>(options_.beta2), static_cast<T>(divisor)};
      const int64_t first = piece.range.begin;
      lion_update(part_.parameters.mutable_data_ptr<T>() + first,
                  part_.gradients.const_data_ptr<T>() + first,
                  momentum_.mutable_data_ptr<T>() + first, piece.range.size(), rates);
    }
  }

  FlatPart part_;
  LionOptions options_;
  at::Tensor momentum_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> flat_lion(FlatPart part, const LionOptions& options) {
  check_reals_in_memory(part, "flat_lion");
  return std::make_unique<Lion>(std::move(part), options);
}

}  // namespace hanji::parallel
