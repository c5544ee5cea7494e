/// torch::data on the token file of bench/loader.py: inputs and targets as int64.
#include <ATen/Parallel.h>
#include <torch/data.h>

#include <cstring>
#include <iostream>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"

using namespace hanji;

namespace {

class Tokens : public torch::data::datasets::Dataset<Tokens> {
 public:
  Tokens(const std::string& path, int64_t length)
      : file_(std::make_shared<base::MappedFile>(base::MappedFile::open(path).or_throw())),
        length_(length) {}

  torch::data::Example<> get(size_t index) override {
    return {run_at(static_cast<int64_t>(index) * length_),
            run_at(static_cast<int64_t>(index) * length_ + 1)};
  }
  std::optional<size_t> size() const override {
    return (file_->bytes().size() / 2 - 1) / static_cast<size_t>(length_);
  }

 private:
  at::Tensor run_at(int64_t begin) const {
    at::Tensor ids = at::empty({length_}, at::kLong);
    auto* out = ids.mutable_data_ptr<int64_t>();
    const std::byte* from = file_->bytes().data() + 2 * begin;
    for (int64_t i = 0; i < length_; ++i) {
      uint16_t id = 0;
      std::memcpy(&id, from + 2 * i, 2);
      out[i] = id;
    }
    return ids;
  }

  std::shared_ptr<base::MappedFile> file_;
  int64_t length_;
};

void run(const std::string& path, int64_t length, size_t batch_size, size_t workers) {
  const int64_t start_ns = base::now_ns();
  auto samples = Tokens(path, length).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(samples),
      torch::data::DataLoaderOptions().batch_size(batch_size).workers(workers).drop_last(true));
  auto next = loader->begin();
  const double first = static_cast<double>(base::now_ns() - start_ns) * 1e-9;
  if (!next->data.narrow(1, 1, length - 1).equal(next->target.narrow(1, 0, length - 1))) {
    throw std::runtime_error("targets are not the next inputs");
  }
  std::cout << base::Json({{"decoder", "torch::data"}, {"first_batch_seconds", first}}).dump()
            << std::endl;
  const auto take = [&] {
    if (++next == loader->end()) next = loader->begin();
  };
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = base::parse_json(line).or_throw();
    for (int64_t i = 0; i < asked["untimed"].get<int64_t>(); ++i) take();
    std::vector<double> seconds;
    for (int64_t i = 0; i < asked["batches"].get<int64_t>(); ++i) {
      const int64_t begin = base::now_ns();
      take();
      seconds.push_back(static_cast<double>(base::now_ns() - begin) * 1e-9);
    }
    std::cout << base::Json({{"seconds", seconds}}).dump() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  at::set_num_threads(1);
  try {
    run(argv[1], std::stoll(argv[2]), std::stoul(argv[3]), std::stoul(argv[4]));
  } catch (const std::exception& error) {
    std::cerr << "loader_torch_data: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
