// Counts what looking for changes in a module allocates in a step: nothing.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "hanji/parallel/parameter_watch.h"

namespace {
thread_local int64_t num_allocations_of_watch = 0;
}

void* operator new(size_t bytes) {
  ++num_allocations_of_watch;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hanji::parallel {
namespace {

TEST(ParameterWatch, AllocatesNothingWhereNothingHasChanged) {
  const auto net = std::make_shared<torch::nn::Module>("net");
  for (int i = 0; i < 12; ++i) {
    const auto inner = std::make_shared<torch::nn::Module>("inner");
    inner->register_module("a_child_whose_name_fits_in_no_short_string", torch::nn::Linear(2, 2));
    net->register_module("block" + std::to_string(i), inner);
  }
  net->parameters()[3].set_requires_grad(false);
  ParameterWatch watch(*net, "data_parallel", ParameterWatch::Types::kStay);
  const int64_t before = num_allocations_of_watch;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.has_mistakes());
  EXPECT_EQ(num_allocations_of_watch, before);
  net->parameters()[3].set_requires_grad(true);
  EXPECT_TRUE(watch.has_mistakes());
  EXPECT_GT(num_allocations_of_watch, before);  // the counter counts
}

}  // namespace
}  // namespace hanji::parallel
