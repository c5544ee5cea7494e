// Strategies that must give the same bits as each other.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using namespace test_net;
using test::run_ranks;

TEST(SameBits, OfAShardedOptimizerAndOfDataParallel) {
  run_ranks(3, [](world::World& world) {
    const int64_t begin = world.rank() * 4;
    Net ours(torch::kFloat), theirs(torch::kFloat);
    auto sharded = shard_optimizer(ours, world.group(), {.unit_bytes = 5000});
    auto replicas = data_parallel(theirs, world.group());
    torch::optim::AdamW our_optimizer(sharded.parameters(), 1e-2);
    torch::optim::AdamW their_optimizer(distinct(theirs), 1e-2);
    for (int step = 0; step < 5; ++step) {
      our_optimizer.zero_grad();
      their_optimizer.zero_grad();
      mean_loss(ours, step, begin, begin + 4).backward();
      mean_loss(theirs, step, begin, begin + 4).backward();
      const double norm = clip_grad_norm(distinct(theirs), 0.05);
      EXPECT_EQ(sharded.clip_grad_norm(0.05), norm);
      sharded.step(our_optimizer);
      their_optimizer.step();
    }
    EXPECT_TRUE(same_bits(values_of(ours), values_of(theirs)));
  });
}

}  // namespace
}  // namespace hanji::parallel
