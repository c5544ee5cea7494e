#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

namespace hanji::parallel {

/// torch::nn::Sequential whose modules are units: with fully_shard() each is whole only while it
/// computes. Every module takes a tensor and gives one.
class SequentialImpl : public torch::nn::SequentialImpl {
 public:
  using torch::nn::SequentialImpl::SequentialImpl;

  at::Tensor forward(at::Tensor input);
};

/// The holder: hanji::Sequential net(torch::nn::Linear(2, 8), torch::nn::ReLU(), ...).
class Sequential : public torch::nn::ModuleHolder<SequentialImpl> {
 public:
  using torch::nn::ModuleHolder<SequentialImpl>::ModuleHolder;
};

}  // namespace hanji::parallel
