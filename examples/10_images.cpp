// Images of a .beton file in a training loop of your own: each rank decodes its share of every batch, ahead,
// on threads of its own. A batch is the same samples for any number of ranks and threads.
//
//   10_images                 hanji run --ranks 2 10_images
#include <hanji/data/batch.h>
#include <hanji/data/beton_generated.h>
#include <hanji/data/beton_images.h>
#include <hanji/data/prefetcher.h>
#include <hanji/hanji.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace data = hanji::data;
using namespace torch::nn;

constexpr int64_t kClasses = 5, kBatch = 64, kSteps = 100;

Sequential make_net() {
  const auto conv = [](int64_t from, int64_t to) {
    return Conv2d(Conv2dOptions(from, to, 3).stride(2).padding(1));
  };
  return Sequential(conv(3, 16), ReLU(), conv(16, 32), ReLU(), conv(32, 64), ReLU(), Flatten(),
                    Linear(64 * 16, kClasses));
}

/// A file of shapes, one per rank for the sake of the example: `hanji data make` writes yours.
data::BetonImages open_images(int rank) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("hanji-10-" + std::to_string(getpid()) + "-" + std::to_string(rank));
  const auto shapes = data::generated_recipe({.count = 1000, .size = 40, .classes = kClasses});
  hanji::base::throw_if_error(data::make_beton(*shapes, path).status());
  data::BetonImagesOptions options{.size = 32};
  options.stages =
      hanji::plan::parse_image_stages("random_resized_crop(min_area = 0.5), flip, normalise")
          .or_throw();
  auto images =
      data::BetonImages::create(data::BetonFile::open(path).or_throw(), options).or_throw();
  std::filesystem::remove(path);  // it stays mapped
  return images;
}

int main() {
  auto world = hanji::connect();
  torch::manual_seed(1);
  auto net = make_net();
  auto replicas = hanji::data_parallel(*net, world.group());
  torch::optim::AdamW optimizer(net->parameters(), 3e-3);

  const data::BetonImages images = open_images(world.rank());
  const int64_t half = kBatch / world.size();
  const auto loader =
      data::Loader::create({.seed = 1,
                            .num_samples = images.num_train(),
                            .global_batch = kBatch,
                            .share = {half * world.rank(), half * (world.rank() + 1)},
                            .micro_batch = half})
          .or_throw();
  data::Prefetcher prefetcher(images, loader, /*num_threads=*/1, kSteps);
  for (int64_t step = 0; step < kSteps; ++step) {  // any first step: nothing else is to be restored
    const hanji::Batch& batch = prefetcher.read(step, loader.options().share);
    const auto loss = torch::cross_entropy_loss(net->forward(batch.inputs), batch.targets);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (world.rank() == 0 && step % 25 == 24) {
      std::printf("step %ld: loss %.3f\n", step + 1, loss.item<double>());
    }
  }
  replicas.check_parameters();

  hanji::Batch batch;
  data::read_validation_batch(images, images.num_validation(), {0, images.num_validation()}, batch);
  const torch::NoGradGuard no_grad;
  const auto right = net->forward(batch.inputs).argmax(1).eq(batch.targets).sum().item<int64_t>();
  std::printf("rank %d: %ld of %ld validation images right\n", world.rank(), right, batch.size());
  return 10 * right > 8 * batch.size() ? 0 : 1;
}
