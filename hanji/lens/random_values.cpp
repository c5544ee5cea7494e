#include "hanji/lens/internal/random_values.h"

#include <ATen/ops/empty.h>

#include <array>
#include <string_view>

#include "hanji/base/normal.h"
#include "hanji/base/random.h"

namespace hanji::lens {
namespace {

constexpr uint64_t kInitialValues = 0x696E697469616C;

double number(const Entry& entry, std::string_view argument, double otherwise) {
  const auto& arguments = entry.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != argument) continue;
    const auto* value = std::get_if<c10::IValue>(&entry.arguments[i]);
    if (value && value->isScalar()) return value->toScalar().toDouble();
  }
  return otherwise;
}

double value_of(const Distribution& d, uint32_t word) {
  switch (d.kind) {
    case Distribution::Kind::kUniform: return d.a + base::uniform(word) * (d.b - d.a);
    case Distribution::Kind::kNormal:
      return d.a + d.b * base::normal_quantile((word + 0.5) * 0x1p-32);
    case Distribution::Kind::kBernoulli: return base::uniform(word) < d.a ? 1 : 0;
  }
  return 0;
}

}  // namespace

std::optional<Distribution> distribution_of(const Entry& entry) {
  using Kind = Distribution::Kind;
  const std::string& name = entry.handle.schema().name();
  const std::string& overload = entry.handle.schema().overload_name();
  if (name == "aten::uniform_") {
    return Distribution{Kind::kUniform, number(entry, "from", 0), number(entry, "to", 1)};
  }
  if (name == "aten::rand" || name == "aten::rand_like") return Distribution{Kind::kUniform, 0, 1};
  if (name == "aten::randn" || name == "aten::randn_like") return Distribution{Kind::kNormal, 0, 1};
  if (name == "aten::normal_" || (name == "aten::normal" && overload == "float_float")) {
    return Distribution{Kind::kNormal, number(entry, "mean", 0), number(entry, "std", 1)};
  }
  if (name == "aten::bernoulli_" && overload == "float") {
    return Distribution{Kind::kBernoulli, number(entry, "p", 0.5), 0};
  }
  return std::nullopt;
}

at::Tensor random_values(const Distribution& distribution, uint64_t key, layout::Range range,
                         at::ScalarType dtype) {
  auto wide = at::empty({range.size()}, at::kDouble);
  double* out = wide.data_ptr<double>();
  std::array<uint32_t, 4> words{};
  for (int64_t e = range.begin; e < range.end; ++e) {
    if (e == range.begin || e % 4 == 0) {
      words = base::Philox::draw(key, 0, static_cast<uint64_t>(e / 4));
    }
    *out++ = value_of(distribution, words[static_cast<size_t>(e % 4)]);
  }
  auto values = wide.to(dtype);
  if (distribution.kind == Distribution::Kind::kUniform && distribution.b > distribution.a) {
    values.masked_fill_(values.ge(distribution.b), distribution.a);  // rounded up to the end
  }
  return values;
}

uint64_t draw_key(const Tape& tape, const Entry& entry) {
  return base::mix(base::mix(tape.seed, kInitialValues), entry.draw);
}

}  // namespace hanji::lens
