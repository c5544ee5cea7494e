// A layer of pairs whose rows ranks share out, proved against one rank: outputs, gradients of inputs and of every
// parameter, in float64. With "slice", the gathered operand's backward keeps this rank's part of the gradient
// and loses the terms of the others: forward is right, and the check names what is not.
//
//   hanji run --ranks 3 11_axial_gradcheck         hanji run --ranks 3 11_axial_gradcheck slice
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdio>
#include <cstring>

namespace axial = hanji::parallel::axial;

struct Triangle : torch::nn::Module {
  Triangle(const axial::Axis& own_axis, bool slice) : axis(own_axis), slices(slice) {}

  // z [samples, own rows, residues, 8]: for each pair of residues the sum over a third one.
  torch::Tensor forward(const torch::Tensor& z) {
    const axial::Places places =
        axial::places_on(axis, z.size(2), 0, hanji::layout::TriangleWay::kChannels);
    const axial::Typed<axial::Rows> a(left(z)), b(right(z));
    if (!slices) return triangle_product(a, b, axial::Edges::kOutgoing, places).value();
    const auto all = hanji::parallel::tensor::whole(b, axis, places.residues).value();
    return torch::einsum("nikc,njkc->nijc", {a.value(), all});
  }

  axial::Axis axis;
  bool slices;
  torch::nn::Linear left = register_module("left", torch::nn::Linear(8, 8));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(8, 8));
};

int main(int argc, char** argv) {
  auto world = hanji::connect();
  const bool slices = argc > 1 && std::strcmp(argv[1], "slice") == 0;
  const auto pairs = torch::arange(13 * 13 * 8, torch::kDouble).cos().view({1, 13, 13, 8});
  const auto differences = axial::check_gradients(
      {.make = [&](const axial::Axis& axis) { return std::make_shared<Triangle>(axis, slices); },
       .forward = [](torch::nn::Module& module, const std::vector<torch::Tensor>& inputs)
           -> std::vector<torch::Tensor> { return {module.as<Triangle>()->forward(inputs[0])}; },
       .inputs = {{pairs, 1}},
       .output_dims = {1}},
      world.group());
  if (world.rank() == 0) {
    std::printf("%d ranks: %zu differences from one\n", world.size(), differences.size());
    for (const auto& [what, relative] : differences) {
      std::printf("  %s: %.1e\n", what.c_str(), relative);
    }
  }
  const bool is_wrong = slices && world.size() > 1;
  return differences.empty() == is_wrong ? 1 : 0;
}
